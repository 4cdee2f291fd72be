"""Records of an executor tell whose results each task takes, and become WfFormat."""

from __future__ import annotations

from pathlib import Path

from gspc_trio import Executor
from gspc_trio.executor.call_table import CallTable
from gspc_trio.records.lines import decode_record
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
