"""The resources of a co-allocation on their way to the task: in a frame, and to the compute process."""

from __future__ import annotations

import msgpack
import pytest

from gspc_trio.components.rm.messages import Demand
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.worker.messages import Submission, Submit
from gspc_trio.compute.channel import RUN, pack_run, unpack
from gspc_trio.core.task import CORE, TaskOptions
from gspc_trio.protocol.codec import DecodeError

HELD = ("r1.core0@near", "r2.core1@far")


def submit(*submissions: Submission) -> Submit:
    return Submit("j1", (1, 2), ("r1.core0", "r2.core1"), submissions, "core")


@pytest.mark.parametrize("options", [TaskOptions(), TaskOptions(attempts=3)])
def test_held_resources_travel_with_a_submission(options: TaskOptions) -> None:
    codec = wire_codec()
    behind = Submission(9, 1, 3, (b"",), options, after=(8, 1))
    sent = submit(Submission(7, 1, 3, (b"x",), options, HELD), Submission(8, 1, 3, (), options), behind)
    assert codec.decode_batch(codec.encode_batch([sent])) == [sent]


def test_ranks_travel_with_submissions_and_demands_say_whether_they_share() -> None:
    codec = wire_codec()
    sent = submit(Submission(7, 1, 3, rank=-5), Submission(8, 1, 3, (b"x",), TaskOptions(attempts=3), rank=9))
    demands = [
        Demand("j1", CORE, 2, (1, 1), priority, shared) for priority in (0, 1) for shared in (False, True)
    ]
    assert codec.decode_batch(codec.encode_batch([sent, *demands])) == [sent, *demands]


def test_held_resources_that_are_not_text_are_refused() -> None:
    codec = wire_codec()
    good = codec.encode_batch([submit(Submission(7, 1, 3, (b"x",), TaskOptions(), HELD))])
    bad = good.replace(msgpack.packb(HELD), msgpack.packb((1, 2)))
    assert bad != good
    with pytest.raises(DecodeError, match="wrong type"):
        codec.decode_batch(bad)


def test_the_compute_process_gets_them_as_one_more_field() -> None:
    plain = unpack(b"".join(pack_run(7, 1, 3, [b"x"], 0, True)))
    assert plain == [RUN, 7, 1, 3, [b"x"], 0, True]
    assert unpack(b"".join(pack_run(7, 1, 3, [b"x"], 0, True, HELD))) == [*plain, list(HELD)]
    assert unpack(b"".join(pack_run(7, 1, 3, [b"x"], 0, True, after=(6, 2)))) == [*plain, [], b"", [6, 2]]
