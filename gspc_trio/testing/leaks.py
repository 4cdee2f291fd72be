"""Start and stop the system many times, and see what is left: ``python -m gspc_trio.testing.leaks``.

Descriptors, threads and memory of this process, processes below it, shared memory, files in the temporary and
the runtime directory: all must be as they were.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import trio
from msgspec import Struct

from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.executor import Executor
from gspc_trio.workflow.net import Net

WARM_UP = 5
"""Starts before the first look: what is made once is no leak."""

GROWTH_MIB_MAX = 8.0
"""What memory may have grown after all starts: the allocator breathes."""

SETTLE_S = 5.0
"""How long the kernel may take to remove what has ended."""

COMMAND_S = 60.0
"""How long a command may take."""


class Left(Struct, frozen=True):
    """What there is: names of descriptors, threads, processes, files and shared memory, and MiB of memory."""

    descriptors: tuple[str, ...]
    threads: int
    processes: tuple[str, ...]
    files: tuple[str, ...]
    memory_mib: float


def look(folder: Path) -> Left:
    """Return what there is now; ``folder`` is the temporary and runtime directory."""
    me = psutil.Process()
    descriptors = []
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors.append(os.readlink(f"/proc/self/fd/{name}").partition(":")[0])
        except OSError:
            continue  # that of the listing itself
    processes = tuple(" ".join(child.cmdline())[:100] for child in me.children(recursive=True))
    files = [str(path) for path in folder.rglob("*") if not path.is_dir()]
    files += [str(path) for path in Path("/dev/shm").glob(f"*gspc*{os.getpid()}*")]
    memory_mib = me.memory_info().rss / 2**20
    return Left(tuple(sorted(descriptors)), me.num_threads(), processes, tuple(files), memory_mib)


def what_leaked(before: Left, after: Left) -> list[str]:
    """Return what there is more than before, a line each."""
    lines = []
    for what in ("descriptors", "processes", "files"):
        left = list(getattr(after, what))
        for name in getattr(before, what):
            if name in left:
                left.remove(name)
        lines += [f"{what} left: {name}" for name in left]
    if after.threads > before.threads:
        lines.append(f"threads: {after.threads} instead of {before.threads}")
    if after.memory_mib > before.memory_mib + GROWTH_MIB_MAX:
        lines.append(f"memory: {after.memory_mib:.1f} MiB instead of {before.memory_mib:.1f}")
    return lines


def double(value: int) -> int:
    """Return twice the value: the task that is run."""
    return 2 * value


def start_embedded(number: int) -> None:
    """Run a small job on an embedded system; every third time with the blocking executor."""
    if number % 3 == 2:
        with Executor(cores=1) as executor:
            assert list(executor.map(double, range(3))) == [0, 2, 4]
    else:
        trio.run(_small_job)


async def _small_job() -> None:
    net = Net("small")
    net.transition("double", double, {"value": net.input("numbers")}, net.output("results"))
    async with open_rts(cores=1) as rts, open_job(net, rts=rts, values={"numbers": [1, 2, 3]}) as job:
        result = await job.wait()
        assert sorted(result.outputs["results"]) == [2, 4, 6]


def start_stand_alone(_number: int) -> None:
    """Start a run-time system with processes of its own, and stop it."""
    command = [sys.executable, "-m", "gspc_trio.cli.rts"]
    with subprocess.Popen(
        [*command, "start", "--cores", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert any(line.startswith("connection file") for line in process.stdout), "it did not start"
        subprocess.run([*command, "stop"], check=True, capture_output=True, timeout=COMMAND_S)
        process.communicate(timeout=COMMAND_S)
    assert process.returncode == 0, f"it ended with {process.returncode}"


def run(start: Callable[[int], None], starts: int, folder: Path) -> list[str]:
    """Start and stop so many times; return what has leaked.

    Args:
        start: starts and stops once, given its number.
        starts: how often, besides a few to warm up.
        folder: the temporary and runtime directory of this process, empty.
    """
    for number in range(WARM_UP):
        start(number)
    before = look(folder)
    for number in range(starts):
        start(number)
    end_s = time.monotonic() + SETTLE_S
    while (leaked := what_leaked(before, look(folder))) and time.monotonic() < end_s:
        time.sleep(0.1)
    return leaked


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status: 0 if nothing was left."""
    parser = argparse.ArgumentParser(prog="python -m gspc_trio.testing.leaks", description=__doc__)
    parser.add_argument("--starts", type=int, default=100, help="how often to start and stop")
    parser.add_argument("--stand-alone", action="store_true", help="run-time systems of their own processes")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="leaks") as name:
        folder = Path(name)
        for variable in ("TMPDIR", "XDG_RUNTIME_DIR"):
            os.environ[variable] = name
        tempfile.tempdir = None
        begun_s = time.monotonic()
        leaked = run(start_stand_alone if chosen.stand_alone else start_embedded, chosen.starts, folder)
        elapsed_s = time.monotonic() - begun_s
    for line in leaked:
        print(line)
    print(f"{chosen.starts} starts and stops in {elapsed_s:.1f} s, {len(leaked)} leaks")
    return 1 if leaked else 0


if __name__ == "__main__":
    sys.exit(main())
