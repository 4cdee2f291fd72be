"""What a RIF knows of the data that tasks fetch, before they are at their worker."""

from __future__ import annotations

from gspc_trio.components.rif.shell.host_staging import measured
from gspc_trio.components.worker.messages import Submission, Submit
from gspc_trio.core.task import TaskOptions
from gspc_trio.protocol.values import Placed, bytes_reference

FETCHED = TaskOptions(stage_in=True)
LARGE, OTHER = bytes_reference("d1", 1000, "north"), bytes_reference("d2", 50, "south")


def submit(*submissions: Submission) -> Submit:
    return Submit("j1", (1, 1), ("r1.core0",), submissions)


def test_what_stage_in_fetches_is_measured() -> None:
    part = Placed("d3", 10, 5, 300).encoded()  # all of the data has to come
    given = submit(
        Submission(1, 1, 7, (b"small", LARGE, LARGE, OTHER), FETCHED),
        Submission(2, 1, 7, (LARGE,)),
        Submission(3, 1, 7, (part,), FETCHED),
        Submission(4, 1, 7, (b"small",), FETCHED),
    )
    assert [one.input_bytes for one in measured(given).submissions] == [1050, 0, 300, 0]
    assert [one.arguments for one in measured(given).submissions] == [
        one.arguments for one in given.submissions
    ]


def test_a_reference_that_is_none_is_left_to_its_task() -> None:
    given = submit(Submission(1, 1, 7, (LARGE, b"\xc1\0\xff"), FETCHED))
    assert measured(given).submissions[0].input_bytes == 1000


def test_what_fetches_nothing_is_left_as_it_is() -> None:
    given = submit(Submission(1, 1, 7, (LARGE,)))
    assert measured(given) is given
