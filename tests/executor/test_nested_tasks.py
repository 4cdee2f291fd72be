"""Tasks that start tasks and wait for them, on fewer cores than wait."""

from __future__ import annotations

import inspect
import signal
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest

from gspc_trio import Executor, TaskFailed, current_executor
from gspc_trio.compute.nested import TaskExecutor
from gspc_trio.core.nested import DEPTH_MAX
from tests.e2e.support import wait_until
from tests.executor.nested import (
    depth,
    fibonacci,
    need_one_that_dies,
    say_within,
    start_those_that_die,
    wait_for_one_that_hangs,
    wait_in_all_ways,
)
from tests.executor.support import double

PATIENCE_S = 60.0

pytestmark = pytest.mark.process


def test_more_wait_than_there_are_cores(executor: Executor) -> None:
    futures = [executor.submit(fibonacci, 6) for _ in range(3)]
    assert [future.result(PATIENCE_S) for future in futures] == [8, 8, 8]


def test_what_is_nested_too_deep_is_called_at_once(executor: Executor) -> None:
    assert executor.submit(depth, DEPTH_MAX + 3).result(PATIENCE_S) == DEPTH_MAX + 3


def test_all_ways_to_wait(executor: Executor) -> None:
    filled = ({"all": [0, 2, 4], "more": (1, [4])}, [10])
    mapped = ([0, 2, 4], [0, 2, 4, 6, 8], [3, 7])
    expected = [[0, 2, 4, 6], *mapped, 17, filled, 8, "LookupError('no')", True]
    both = [executor.submit(wait_in_all_ways) for _ in range(2)]
    assert [future.result(PATIENCE_S) for future in both] == [expected, expected]


def test_nested_tasks_end_with_those_that_wait_for_them(executor: Executor, tmp_path: Path) -> None:
    def pids() -> list[int]:
        return [int(path.name) for path in tmp_path.iterdir()]

    futures: list[Future[None]] = [executor.submit(wait_for_one_that_hangs, str(tmp_path)) for _ in range(2)]
    wait_until(lambda: len(pids()) == 2, "both hang")
    for future in futures:
        future.cancel()
        with pytest.raises(CancelledError):
            future.result(PATIENCE_S)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids()), "they are ended")
    assert executor.submit(double, 2).result(PATIENCE_S) == 4


def test_what_nested_tasks_print_is_shown_and_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for output in ("show", "files"):
        with Executor(1, output=output) as executor:
            executor.submit(say_within, "inner").result(PATIENCE_S)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[print (nested) 1] inner",
        "[say_within 1] outer",
    ]
    assert (tmp_path / "gspc-output" / "1-print_nested.out").read_text() == "inner\n"


def test_a_nested_task_that_dies_is_tried_again_or_lost(executor: Executor, tmp_path: Path) -> None:
    future = executor.submit(start_those_that_die, str(tmp_path / "died"))
    assert future.result(PATIENCE_S) == ("lives", "TaskFailed: lost", 42)


def test_a_failure_of_a_nested_task_says_what_failed_where_and_how(executor: Executor) -> None:
    error = executor.submit(need_one_that_dies).exception(PATIENCE_S)
    assert isinstance(error, TaskFailed)
    assert (error.kind, error.name, error.attempt, error.exit_status) == ("lost", "die", 1, -signal.SIGKILL)
    assert error.host


@pytest.mark.parametrize("name", ["map", "starmap", "with_options", "shutdown", "submit"])
def test_it_is_called_as_an_executor_is(name: str) -> None:
    nested, plain = (inspect.signature(getattr(one, name)) for one in (TaskExecutor, Executor))
    like = str(plain).rpartition("->")[0]
    for left_out in (" | Variants", ", show_progress: 'bool' = False"):  # tasks of tasks have neither
        like = like.replace(left_out, "")
    assert str(nested).rpartition("->")[0] == like


def test_other_code_has_no_such_executor() -> None:
    with pytest.raises(RuntimeError, match="no task runs here: make an Executor"):
        current_executor()
