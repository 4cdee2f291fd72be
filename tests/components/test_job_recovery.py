"""A host that dies with its memory: what was made there is made again, up the graph."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import trio

from gspc_trio import Net
from gspc_trio.components.embed import open_job, open_rts
from gspc_trio.core.task import Requirement

# ruff: noqa: ASYNC110 - jobs are watched from outside
pytestmark = pytest.mark.process

MIB = 1 << 20
HANG_S = 100.0


def note(path: str, what: str) -> None:
    with open(path, "a", encoding="ascii") as file:
        file.write(what + "\n")


def make(path: str) -> bytes:
    note(path, "make")
    return b"x" * MIB


def double(path: str, value: bytes) -> bytes:
    note(path, "double")
    return value + value


def wait_for(path: str) -> str:
    begun = time.monotonic()
    while not os.path.exists(path) and time.monotonic() < begun + HANG_S:
        time.sleep(0.01)
    return path


def measure(value: bytes, go: str) -> int:
    del go
    return len(value)


def processes_of_beta(what: str) -> list[psutil.Process]:
    """Return the RIF that is a process of its own, or the memory server that it has started."""
    children = psutil.Process().children(recursive=True)
    [rif] = [child for child in children if "rif_process" in " ".join(child.cmdline())]
    return [one for one in (rif, *rif.children()) if what in " ".join(one.cmdline())]


def recovering(trace: str, gate: str) -> Net:
    there = Requirement("core", ("r2.node",))
    here = Requirement("core", ("r1.node",))
    net = Net("recovery")
    for name in ("make", "double"):
        net.input(f"{name}_trace", [trace])
    net.input("gate", [gate])
    net.place("made")
    net.place("doubled")
    net.place("go")
    net.output("length")
    net.transition("make", make, inputs=["make_trace"], outputs=["made"], requires=there)
    net.transition("double", double, inputs=["double_trace", "made"], outputs=["doubled"], requires=there)
    net.transition("wait", wait_for, inputs=["gate"], outputs=["go"], requires=here)
    net.transition("measure", measure, inputs=["doubled", "go"], outputs=["length"])
    return net


@pytest.mark.parametrize("victim", ["rif_process", "iml_process"])
async def test_lost_data_is_made_again_up_the_graph(tmp_path: Path, victim: str) -> None:
    """Killed are a whole host, or its memory server alone, which is started again."""
    trace, gate = tmp_path / "trace", tmp_path / "gate"
    (tmp_path / "run").mkdir(mode=0o700)
    opened = open_rts(cores=1, host="alpha", data_bytes=64 * MIB, publish=tmp_path / "run" / "rts.json")
    with trio.fail_after(HANG_S):
        async with opened as rts:
            report = await rts.bootstrap(["beta"], "local", cores=1)
            assert not report.failed, report.failed
            async with open_job(recovering(str(trace), str(gate)), rts=rts) as job:
                while job.status()["tasks"].get("finished", 0) < 2:
                    await trio.sleep(0.01)
                [killed] = processes_of_beta(victim)
                os.kill(killed.pid, signal.SIGKILL)
                while victim == "rif_process" and len(await rts.host_to_resource()) > 1:
                    await trio.sleep(0.01)
                gate.touch()
                result = await job.wait()
    assert result.outputs["length"] == [2 * MIB]
    assert sorted(trace.read_text().split()) == ["double", "double", "make", "make"]
