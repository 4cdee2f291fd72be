"""What a run has computed is not lost when its report fails."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from gspc_trio.cli.results import check_results_file, write_results
from tests.e2e.support import World, one_line

pytestmark = pytest.mark.process

FLOW = """
from gspc_trio import farm, Workflow

def same(item):
    return item

def report(outputs):
    print(outputs["no such port"])

def workflow():
    return Workflow(farm(same), {"items": [1, 2]}, report)
"""


def test_results_are_in_the_file_and_the_message_says_so(world: World) -> None:
    path = world.folder / "results.json"
    done = world.run("jobserver", "run", world.workflow(FLOW), "--cores", "1", "--output", str(path))
    assert done.returncode == 1
    assert "line 8: KeyError: 'no such port'" in one_line(done.stderr)
    assert f"the results are in {path}" in one_line(done.stderr)
    assert sorted(json.loads(path.read_text())["outputs"]["results"]) == [1, 2]
    assert path.stat().st_mode & 0o700 == 0o600
    assert sorted(file.name for file in world.folder.glob("*results*")) == ["results.json"]


def test_a_report_whose_disk_is_full_says_where(world: World) -> None:
    text = FLOW.replace('print(outputs["no such port"])', 'open("/dev/full", "w", 1).write("x\\n")')
    done = world.run("jobserver", "run", world.workflow(text), "--cores", "1")
    assert done.returncode == 1
    assert "flow.py, line 8: OSError: [Errno 28] No space left on device" in done.stderr


def test_results_stay_in_the_journal_and_the_message_says_how_to_see_them(world: World) -> None:
    journal = str(world.folder / "journal")
    done = world.run("jobserver", "run", world.workflow(FLOW), "--cores", "1", "--journal", journal)
    assert done.returncode == 1
    assert f"gspc-jobserver resume {journal} --json prints them" in one_line(done.stderr)
    again = world.run_json("jobserver", "resume", journal)
    assert sorted(again["outputs"]["results"]) == [1, 2]


def test_results_are_printed_when_nothing_keeps_them(world: World) -> None:
    done = world.run("jobserver", "run", world.workflow(FLOW), "--cores", "1", "--output", "/dev/full")
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == ["results: 1", "results: 2"]
    disk, report = done.stderr.splitlines()
    assert disk == "gspc-jobserver: the results cannot be written to /dev/full: No space left on device"
    assert "--output FILE or --journal DIRECTORY keeps them" in report


def test_where_nothing_can_be_written_no_task_runs(world: World) -> None:
    flow = world.workflow(FLOW)
    for path, said in (("nowhere/results", "no directory nowhere"), (".", "this is a directory")):
        done = world.run("jobserver", "run", flow, "--output", path)
        assert (done.returncode, done.stdout) == (1, "")
        assert said in one_line(done.stderr)


def test_a_full_standard_output_is_named(world: World) -> None:
    command = [sys.executable, "-m", "gspc_trio.cli.jobserver", "run", world.workflow(FLOW), "--cores", "1"]
    done = world.run_program("sh", "-c", f"{shlex.join([*command, '--json'])} > /dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        "gspc-jobserver: standard output: No space left on device\n",
    )


def test_a_pipe_takes_the_results_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_results_file(pipe)
    write_results({"outputs": {"results": [1]}}, pipe)
    assert json.loads(os.read(reader, 4096)) == {"outputs": {"results": [1]}}
    os.close(reader)
    assert pipe.is_fifo()
