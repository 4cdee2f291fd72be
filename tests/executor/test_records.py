"""Records of an executor tell whose results each task takes, and become WfFormat."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from gspc_trio import Executor
from gspc_trio.core.task import TaskState
from gspc_trio.executor.call_table import CallTable
from gspc_trio.executor.submitted import MANY
from gspc_trio.records.lines import decode_record, read_records
from gspc_trio.reports.run import recorded_run
from gspc_trio.workflow.formats.format import Surroundings
from gspc_trio.workflow.formats.wfformat.write import trace_of_records
from gspc_trio.workflow.graph import Ref


class Waiting:
    """Somebody who waits for a call."""

    def finish(self, data: bytes) -> None:
        """Nothing."""

    def fail(self, error: BaseException) -> None:
        """Nothing."""

    def give_up(self) -> None:
        """Nothing."""


def test_a_task_takes_results_that_were_there_and_those_to_come() -> None:
    table: CallTable[Waiting] = CallTable("executor", lambda _: True)
    table.note_flow()
    assert table.taken is not None
    for arguments in ((), (), (Ref(1), Ref(2), Ref(1))):
        task_id = table.graph.add("t", 0, arguments)
        table.receivers[task_id] = Waiting()
    table.taken[table.receivers[3]] = [7, 2, 8]
    assert [table.flow(task_id).parents for task_id in (1, 2, 3)] == [(), (), (1, 2, 7, 8)]
    assert table.taken == {}  # it does not grow with the tasks that have begun
    table.taken[Waiting()] = [1]  # another of its arguments has failed: it becomes no task
    assert table.taken == {}


def test_records_of_an_executor_become_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with Executor(1, threads=True, records=file) as executor:
        a, b = executor.submit(pow, 2, 3), executor.submit(abs, -1)
        c = executor.submit(pow, a, b)
        assert c.result() == 8
        assert executor.submit(divmod, c, a).result() == (1, 0)  # which have both ended
    records = map(decode_record, file.read_bytes().splitlines())
    found = trace_of_records(records, Surroundings(lambda _: None, str))
    assert found.lost == ()
    parents = {task.name: sorted(task.parents) for task in found.trace.tasks.values() if task.parents}
    assert parents == {"pow": ["abs", "pow#1"], "divmod": ["pow#1", "pow#3"]}


def test_calls_that_travel_in_ranges_are_recorded_as_tasks(tmp_path: Path) -> None:
    file, calls = tmp_path / "run.jsonl", 5 * MANY
    with Executor(1, records=file) as executor:
        assert executor.submit(divmod, 1, 1).result() == (1, 0)
        futures = [executor.submit(divmod, 7, number) for number in range(calls)]
        errors = [number for number, future in enumerate(futures) if future.exception() is not None]
        tasks = executor._loop._table.graph.counts()[TaskState.FINISHED]
        assert executor.submit(pow, futures[-1], 1).exception() is not None
        assert list(executor.map(abs, range(MANY))) == [*range(MANY)]
    assert errors == [0]
    assert tasks < calls, "there were no ranges"
    run = recorded_run(read_records(file.read_bytes().splitlines()))
    (job,) = run.jobs.values()
    assert job.counts == {
        **dict.fromkeys(job.counts, 0),
        TaskState.FINISHED: calls + MANY,
        TaskState.FAILED: 2,
    }
    names = Counter(attempt.name for attempt in run.attempts)
    assert names == {"divmod": calls + 1, "pow": 1, "abs": MANY}
    assert all(attempt.ready_s <= attempt.over_s and attempt.compute_s >= 0 for attempt in run.attempts)
    assert all(attempt.begin_s > 0 for attempt in run.attempts if attempt.state is TaskState.FINISHED)
    (last,) = (attempt.task_id for attempt in run.attempts if attempt.name == "pow")
    (parent,) = run.flows[job.job, last].parents
    assert run.flows[job.job, parent].name == "divmod"
