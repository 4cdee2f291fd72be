"""Programs that call the barrier themselves, at workers of an embedded run-time system."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from gspc_trio import coallocation, open_coallocation, open_resources, open_rts
from gspc_trio.cli.coallocation.services import barrier
from gspc_trio.cli.common import CommandError
from gspc_trio.components.coallocation.shell.programs import InsideBarrier, run_inside
from gspc_trio.components.rts.shell.direct import DirectWorker, open_worker
from gspc_trio.core.code import Program
from gspc_trio.core.nested import BARRIER_VARIABLE

HANG_S = 60.0
COMMAND = Path(sys.executable).with_name("gspc-coallocate")
CALLS = """
import os, sys
from gspc_trio.coallocation import barrier
yes = barrier()
print(yes, os.environ["GSPC_RESOURCES"] if yes else "")
open(sys.argv[1], "w").write(str(yes))
sys.exit(not yes)
"""
SLEEPS = "import time; time.sleep(3600)"


@asynccontextmanager
async def two_workers() -> AsyncIterator[list[DirectWorker]]:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2) as rts, open_resources(rts) as resources:
            held = await resources.acquire("core", "core")
            async with (
                open_worker(rts, resources, held, held.resources[0]) as one,
                open_worker(rts, resources, held, held.resources[1]) as other,
            ):
                yield [one, other]


def _texts(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.iterdir()]


@pytest.mark.parametrize("text", [CALLS, SLEEPS])
async def test_programs_at_the_barrier_go_on_when_all_are_ready_or_are_told_no(
    text: str, tmp_path: Path
) -> None:
    """If the other one never comes, the one that waits is told no, and both end."""
    go, refused, ready = trio.Event(), trio.Event(), list[int]()
    results: list[dict[str, object] | None] = []

    def report() -> None:
        ready.append(len(ready))
        if text == SLEEPS:
            refused.set()
        elif len(ready) == 2:
            go.set()

    async def run(worker: DirectWorker, code: str) -> None:
        barrier = InsideBarrier(go, refused, lambda: "a@b", report)
        program = Program((sys.executable, "-c", code, str(tmp_path / worker.resource_id.replace("/", "-"))))
        results.append(await run_inside(worker, program, barrier))

    async with two_workers() as workers:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, workers[0], CALLS)
            nursery.start_soon(run, workers[1], text)
        said = _texts(tmp_path)
        if text == CALLS:
            assert [result["stdout"] for result in results] == ["True a@b\n"] * 2
            assert said == ["True", "True"]
        else:
            assert (results, said, ready) == ([None, None], ["False"], [0])
        assert await workers[1].run(len, "free again") == 10


async def test_a_request_starts_programs_that_call_their_barrier(tmp_path: Path) -> None:
    calls = f'"{COMMAND}" barrier > said; echo $? >> status; grep -c , said; exit 0'
    jobs = {
        "all": {"executable": "sh", "arguments": ["-c", calls], "count": 2},
        "one": {"executable": "sh", "arguments": ["-c", calls]},
        "other": {"executable": "sleep", "arguments": ["3600"]},
        "ends": {"executable": "true"},
    }
    told = {name: {**job, "start": "inside", "directory": str(tmp_path)} for name, job in jobs.items()}
    options = "(start=inside)(barrier_timeout=0.3)"
    for part in ("one", "other"):
        del told[part]["start"]
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2) as rts:
            text = f"*(*(all))(*(ends))(*(+{options}(one)(other)))"
            async with open_coallocation(text, jobs=told, rts=[rts]) as request:
                ends = await request.wait()
    assert [(str(end.state), end.output) for end in ends[:1]] == [("finished", "1\n1\n")]
    assert "has not called the barrier" in ends[1].reason
    assert "not ready in time" in ends[2].reason
    assert sorted((tmp_path / "status").read_text().split()) == ["0", "0"]


def test_there_is_no_barrier_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="start=inside"):
        coallocation.barrier()
    monkeypatch.setenv(BARRIER_VARIABLE, "xyz")
    with pytest.raises(RuntimeError, match="is no place of a barrier"):
        coallocation.barrier()
    monkeypatch.setenv(BARRIER_VARIABLE, "93a16ea16a01")  # a host that is not there
    assert coallocation.barrier() is False
    assert barrier() == 1
    monkeypatch.delenv(BARRIER_VARIABLE)
    with pytest.raises(CommandError, match="start=inside"):
        barrier()
