"""A stream outlives its compute process and its job server, with equal results."""

from __future__ import annotations

import json
import os
import signal

from tests.e2e.support import World, wait_until

STREAM = """
import os, signal, time
from pathlib import Path
from gspc_trio import Workflow, accumulate, farm, keep, pipeline, split_join, stage

def numbers(count):
    yield from range(count)

def add_up(number, total):
    return total + number, total + number

def die_once(number, folder):
    died, here, go = (Path(folder) / name for name in ("died", "here", "go"))
    if number == 21 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 1275 and not go.exists():
        here.touch()
        while not go.exists():
            time.sleep(0.01)
    return number, folder

def double(number):
    return 2 * number

def same(item):
    return item

def append(so_far, item):
    return so_far + [item]

def workflow(folder: str, count: int = 100):
    return Workflow(
        pipeline(
            stage(add_up, state=0),
            stage(die_once, state=folder, batch=1),
            farm(double),
            split_join("duplicate", "tuple", same, farm(str)),
            keep(same),
            accumulate(3, 1, [], append, partial=True),
            buffer=8,
            read_ahead=16,
        ),
        {"items": numbers(count)},
    )
"""


def expected(count: int) -> list[list[list[object]]]:
    sums = [2 * (number * (number + 1) // 2) for number in range(count)]
    pairs: list[list[object]] = [[number, str(number)] for number in sums]
    return [pairs[begin : begin + 3] for begin in range(0, count - 1, 2)]


def test_a_stream_goes_on_where_it_was(world: World) -> None:
    (world.folder / "stream.py").write_text(STREAM)
    folder, journal = world.folder, str(world.folder / "journal")
    given = ("--set", f"folder={folder}", "--journal", journal, "--cores", "2")
    process = world.start("jobserver", "run", str(world.folder / "stream.py"), *given)
    wait_until((folder / "here").exists, "the stream is half way")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (folder / "go").touch()
    done = world.run("jobserver", "resume", journal, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"]["results"] == expected(100)
    assert (folder / "died").exists()
