"""How far the tasks of an executor are, shown while they run."""

from __future__ import annotations

import sys
import threading

import pytest

from gspc_trio import Executor
from gspc_trio.core.task import TaskState
from gspc_trio.executor.progress import Far, _bundle, how_far
from tests.executor.support import Terminal, double, fail


def test_how_far_leaves_out_what_had_ended_before() -> None:
    assert how_far({}) == Far(0, 0, "")
    before = {TaskState.READY: 2, TaskState.FINISHED: 3, TaskState.FAILED: 1}
    now = {
        TaskState.READY: 4,
        TaskState.SUBMITTED: 1,
        TaskState.RUNNING: 2,
        TaskState.FINISHED: 8,
        TaskState.FAILED: 3,
        TaskState.CANCELLED: 1,
    }
    assert how_far(now) == Far(12, 19, "3 failed, 1 cancelled")
    assert how_far(now, before) == Far(8, 15, "2 failed, 1 cancelled")


def test_a_bar_in_a_notebook_takes_no_html_from_the_user() -> None:
    html, text = _bundle("<b>sum</b>", Far(1_000, 2_000, "1 failed"), 3.21)
    assert text == "<b>sum</b>, 1,000 of 2,000 tasks, 1 failed, 3.2 s"
    bar = '<progress value="1000" max="2000" style="width: 24em"></progress>'
    shown = "&lt;b&gt;sum&lt;/b&gt;, 1,000 of 2,000 tasks, 1 failed, 3.2 s"
    assert html == f'<div style="font-variant-numeric: tabular-nums">{bar} {shown}</div>'


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Have standard error pass for a terminal; not in a fixture, for pytest takes it back after that."""
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    monkeypatch.setenv("TERM", "xterm")
    return seen


def no_thread_shows() -> bool:
    return all(thread.name != "gspc-progress" for thread in threading.enumerate())


def test_a_terminal_shows_a_map_and_what_is_submitted_in_a_block(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal(monkeypatch)
    assert executor.submit(double, 1).result() == 2  # it had ended before
    results = executor.map(double, range(5), show_progress=True, chunksize=2)
    assert terminal.getvalue() == ""
    assert list(results) == [0, 2, 4, 6, 8]
    assert "call_each" not in terminal.getvalue()
    assert "double" in terminal.getvalue()
    assert "3/3" in terminal.getvalue()
    with executor.progress("[red]many"), executor.progress("not another one"):
        assert executor.submit(fail, "it").exception() is not None
    assert "[red]many" in terminal.getvalue()
    assert "1 failed" in terminal.getvalue()
    assert "not another one" not in terminal.getvalue()
    assert no_thread_shows()


def test_a_map_that_is_left_early_shows_nothing_more(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal(monkeypatch)
    results = executor.map(double, range(5), show_progress=True)
    assert next(results) == 0
    assert not no_thread_shows()
    del results
    assert no_thread_shows()
    assert terminal.getvalue()


def test_where_nobody_sees_it_nothing_looks(executor: Executor, capsys: pytest.CaptureFixture[str]) -> None:
    with executor.progress("unseen"):
        assert no_thread_shows()
        assert list(executor.map(double, range(3), show_progress=True)) == [0, 2, 4]
    assert capsys.readouterr().err == ""


def test_the_end_of_the_executor_is_the_end_of_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    with Executor(cores=1, threads=True) as executor, executor.progress("short"):
        executor.submit(double, 1).result()
        executor.shutdown()
    assert "short" in terminal.getvalue()
    with executor.progress("late"):
        assert no_thread_shows()
