"""What is recorded of the calls of a range: the same as of tasks, with numbers and times of their own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.job.items_told import records_of, records_of_cancelled
from gspc_trio.components.job.scheduler.interface import EndedItems, TaskDone
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskState
from gspc_trio.records.columns import facts_of
from gspc_trio.records.facts import FactColumns, Record, TaskChanged, TaskFlow

BOOM = TaskError("ValueError", "boom")


def one_by_one(records: list[TaskChanged | FactColumns]) -> list[Record]:
    """Return records as who opens the file sees them."""
    return [
        fact for record in records for fact in (facts_of(record) if type(record) is FactColumns else [record])
    ]


@given(st.integers(1, 20) | st.just(1_001), st.data())
def test_each_call_is_recorded_as_a_task_would_be(count: int, data: st.DataObject) -> None:
    failed = data.draw(st.sets(st.integers(0, count - 1), max_size=5))
    outcome = Outcome(100, 2, Reason.FINISHED, started_s=50.0, duration_s=count * 0.5)
    done = TaskDone(100, TaskState.FINISHED, outcome, f"f x {count}", "r1.core1", 1, count)
    told = one_by_one(records_of("j1", EndedItems(done, "f", count, dict.fromkeys(failed, BOOM), 7.0), 9.0))
    numbers = range(101, 101 + count)
    assert told[:count] == [TaskFlow(7.0, "j1", number, "f") for number in numbers]
    assert told[count : 2 * count] == [
        TaskChanged(7.0, "j1", number, TaskState.READY, name="f") for number in numbers
    ]
    ended = sorted((it for it in told[2 * count :] if isinstance(it, TaskChanged)), key=lambda it: it.task_id)
    assert ended == [
        TaskChanged(
            9.0,
            "j1",
            number,
            TaskState.FAILED if place in failed else TaskState.FINISHED,
            1,
            "f",
            "r1.core1",
            "ValueError: boom" if place in failed else "",
            50.0 + place * 0.5,
            0.5,
        )
        for place, number in enumerate(numbers)
    ]


def test_what_never_ran_is_recorded_as_cancelled() -> None:
    told = one_by_one([*records_of_cancelled("j1", "f", 4, 2, 9.0)])
    assert told == [TaskChanged(9.0, "j1", number, TaskState.CANCELLED, name="f") for number in (4, 5)]
