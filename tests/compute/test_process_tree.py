"""Finding and ending real processes by their place in the tree, or by the marker of their tree (WRK-4)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from gspc_trio.compute import process_tree
from gspc_trio.compute.channel import MARKER
from gspc_trio.compute.sweep import main, marked, sweep

pytestmark = pytest.mark.process

Start = Callable[..., tuple[int, list[int]]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a shell script that prints pids, a line each; return its pid and those."""
    programs: list[subprocess.Popen[str]] = []

    def begin(script: str, lines: int, marker: str = "") -> tuple[int, list[int]]:
        environment = os.environ | ({MARKER: marker} if marker else {})
        program = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
        programs.append(program)
        assert program.stdout is not None
        return program.pid, [int(program.stdout.readline()) for _ in range(lines)]

    yield begin
    for program in programs:
        with program:
            process_tree.kill_all_descendants(program.pid, 5)
            program.kill()


FAMILY = "sleep 3600 & echo $!; setsid sh -c 'sleep 3600 & echo $!; echo $$; wait' & wait"


@pytest.mark.parametrize("has_children_file", [True, False])
def test_everything_below_a_process_is_found_and_ended_but_not_itself(
    start: Start, monkeypatch: pytest.MonkeyPatch, has_children_file: bool
) -> None:
    monkeypatch.setattr(process_tree, "_HAS_CHILDREN_FILE", has_children_file)
    pid, (child, grandchild, leader) = start(FAMILY, 3)
    assert set(process_tree.children(pid)) == {child, leader}
    assert process_tree.children(leader) == [grandchild]
    os.kill(pid, signal.SIGSTOP)
    assert process_tree.kill_all_descendants(pid, 10)
    assert not any(map(process_tree.is_alive, (child, grandchild, leader)))
    assert process_tree.is_alive(pid)
    assert process_tree.kill_descendants(pid) == []
    assert process_tree.state(child) in ("Z", "")


def test_a_process_that_keeps_forking_is_ended(start: Start) -> None:
    pid, _ = start("sh -c 'while :; do sleep 3600 & done' & echo $!; wait", 1)
    os.kill(pid, signal.SIGSTOP)
    assert process_tree.kill_all_descendants(pid, 30)


def test_what_is_gone_or_not_ours_is_left_alone() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert process_tree.state(gone.pid) == ""
    assert not process_tree.is_alive(gone.pid)
    assert process_tree.children(gone.pid) == []
    process_tree.kill(gone.pid, signal.SIGKILL)


def test_time_running_out_is_told(start: Start) -> None:
    pid, _ = start(FAMILY, 3)
    assert not process_tree.kill_all_descendants(pid, -1)


def test_marked_processes_are_found_whatever_tree_is_inside_which(start: Start) -> None:
    inner, inner_children = start("sleep 3600 & echo $!; wait", 1, "aaaa:bbbb")
    other, _ = start("echo 1; sleep 3600; :", 1, "aaaabbbb")
    assert sorted(marked("bbbb")) == sorted(marked("aaaa")) == sorted([inner, *inner_children])
    assert other in marked("aaaabbbb")
    assert marked("cccc") == []


def test_a_sweep_ends_marked_processes_and_what_hides_below_them(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "sleep 3600 & echo $!; env -i setsid sh -c 'sleep 3600 & echo $!; echo $$; wait' & wait"
    pid, below = start(script, 3, "swept")
    other, _ = start("echo 1; sleep 3600; :", 1, "spared")
    monkeypatch.setattr(sys, "argv", ["sweep", "swept"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert not any(map(process_tree.is_alive, [pid, *below]))
    assert process_tree.is_alive(other)
    assert sweep("nobody has this")
