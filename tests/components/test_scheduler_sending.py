"""What a job's scheduler sends to a RIF when it is more than a message can carry."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from attrs import define, field
from msgspec.structs import replace

from gspc_trio.components.scheduler import SchedulerRoutes, _RifLink
from gspc_trio.core.exchange import Cancel, Finished, OpenJob, Submission, Submit
from gspc_trio.core.resources import Resource
from gspc_trio.core.scheduler import ResourcesLost, ResourcesUp
from gspc_trio.core.task import Reason
from gspc_trio.nursery.memory import memory_pair
from gspc_trio.nursery.network import Network
from gspc_trio.protocol.codec import Codec
from gspc_trio.protocol.envelope import EncodeError
from gspc_trio.protocol.limits import KIB, Limits
from gspc_trio.protocol.messages import RifEndpoint


@define
class FarEnd:
    """What arrives there, over a real codec with small limits."""

    codec: Codec = field(factory=lambda: Codec(limits=Limits(message_bytes_max=64 * KIB)))
    arrived: list[Any] = field(factory=list)

    def post(self, message: Any) -> None:
        self.arrived += self.codec.decode_batch(self.codec.encode_batch([message]))


def submit(*sizes: int) -> Submit:
    tasks = tuple(Submission(number, 1, 0, (bytes(size),)) for number, size in enumerate(sizes, 1))
    return Submit("j1", (1, 1), ("c1",), tasks, "core")


def sent(message: Any) -> tuple[list[Any], list[Any]]:
    """Return what arrives at the RIF, and what the machine is told."""
    events: list[Any] = []
    link = _RifLink(RifEndpoint("r1", 1, "host", "", ()), trio.CancelScope(), events.append)
    far = FarEnd()
    link.post(far, message)  # type: ignore[arg-type]
    return far.arrived, events


def test_tasks_that_fit_go_in_one_message() -> None:
    message = submit(100, 200)
    assert sent(message) == ([message], [])


def test_tasks_that_are_too_large_together_go_one_by_one() -> None:
    arrived, events = sent(submit(40 * KIB, 10 * KIB, 40 * KIB))
    assert [[it.task_id for it in message.submissions] for message in arrived] == [[1], [2], [3]]
    assert {(message.grant_id, message.resources, message.resource_class) for message in arrived} == {
        ((1, 1), ("c1",), "core")
    }
    assert events == []


def test_one_that_is_too_large_alone_fails_where_it_would_have_run() -> None:
    arrived, (finished,) = sent(submit(40 * KIB, 100 * KIB, 40 * KIB))
    assert [message.submissions[0].task_id for message in arrived] == [1, 3]
    assert isinstance(finished, Finished)
    (outcome,) = finished.outcomes
    assert (finished.resource_id, outcome.task_id, outcome.attempt) == ("c1", 2, 1)
    assert outcome.reason is Reason.FAILED
    assert outcome.error is not None
    assert outcome.error.message.startswith("it cannot be sent: arguments of 102400 bytes, 64512 can travel")


def test_anything_else_that_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(EncodeError):
        sent(Cancel("j1", "c1", "x" * 100_000))  # type: ignore[arg-type]


async def test_what_was_never_sent_comes_back_before_the_loss() -> None:
    """Tasks that must not run twice may be sent elsewhere: nobody has begun them."""
    events: list[Any] = []
    near, _ = memory_pair("job", "job", "rts", "rts")
    endpoint = RifEndpoint("r1", 1, "host", "memory:nobody", (Resource("r1.core0", "core"),))
    async with trio.open_nursery() as nursery:
        opening = OpenJob("j1", (), "/", {})
        routes = SchedulerRoutes(Network(), near, opening, lambda _: b"", events.append, {}, nursery)
        routes._rif_up(endpoint)
        message = replace(submit(10, 20), resources=("r1.core0",))
        assert routes.send(message)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    up, finished, lost, *_ = events
    assert isinstance(up, ResourcesUp)
    assert [(it.task_id, it.attempt, it.reason) for it in finished.outcomes] == [
        (1, 1, Reason.RETURNED),
        (2, 1, Reason.RETURNED),
    ]
    assert finished.resource_id == "r1.core0"
    assert isinstance(lost, ResourcesLost)
