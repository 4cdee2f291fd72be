"""What the tests of compute share: a recorder of its events, and the functions that tasks run."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from gspc_trio.components.worker.messages import OpenJob, Submission
from gspc_trio.compute.sweep import marked
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import DEFAULT_OPTIONS, Outcome, TaskOptions
from gspc_trio.protocol.values import dumps, loads
from tests.support import until

PATIENCE_S = 60.0
CORE = Resource("r1.core0", "core")


def a_job(name: str = "j1", **changes: Any) -> OpenJob:
    return OpenJob(name, **({"sys_path": tuple(sys.path), "cwd": os.getcwd()} | changes))


@define(eq=False)
class Recorder:
    """Keeps what a compute reports; conditions on it can be waited for."""

    outcomes: list[Outcome] = field(factory=list)
    losses: list[str] = field(factory=list)
    begun: bool | None = None
    changed: trio.Event = field(factory=trio.Event)

    def computed(self, outcomes: tuple[Outcome, ...]) -> None:
        self.outcomes.extend(outcomes)
        self._ring()

    def compute_lost(self, detail: str, begun: bool = True) -> None:
        self.losses.append(detail)
        self.begun = begun
        self._ring()

    def _ring(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def wait(self, count: int) -> list[Outcome]:
        """Wait until so many attempts have been reported."""
        with trio.fail_after(PATIENCE_S):
            while len(self.outcomes) < count:
                assert not self.losses, self.losses
                await self.changed.wait()
        return self.outcomes

    async def wait_lost(self) -> str:
        with trio.fail_after(PATIENCE_S):
            while not self.losses:
                await self.changed.wait()
        return self.losses[0]

    @property
    def keys(self) -> list[tuple[int, int]]:
        return [(outcome.task_id, outcome.attempt) for outcome in self.outcomes]


def submission(
    task_id: int, code_id: int, *arguments: Any, options: TaskOptions = DEFAULT_OPTIONS
) -> Submission:
    return Submission(task_id, 1, code_id, tuple(map(dumps, arguments)), options)


def value_of(outcome: Outcome) -> Any:
    """The one value of an outcome with one output."""
    assert outcome.error is None, outcome.error
    ((data,),) = outcome.values
    return loads(data)


async def until_gone(marker: str) -> None:
    """Wait until no process of a tree is left."""
    await until(lambda: not marked(marker))


def lines_of(path: Path, count: int) -> Sequence[str]:
    """The lines of a file once there are so many, else none."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return lines if len(lines) >= count else []


# Code of tasks


def nothing() -> None:
    pass


def identity(value: Any) -> Any:
    return value


def process_id() -> int:
    return os.getpid()


def note(path: str) -> None:
    """Say that a task has begun."""
    with open(path, "a") as file:
        print(os.getpid(), file=file)


def speak_and_wait(path: str) -> None:
    """Print a little, and wait until there is a file."""
    print("step 1")
    print("step 2")
    print("careful", file=sys.stderr)
    while not os.path.exists(path):
        time.sleep(0.001)


def sleep_after_note(path: str) -> None:
    note(path)
    time.sleep(3600)


def sleep_deaf_after_note(path: str) -> None:
    """Sleep through a polite request to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep_after_note(path)


def spin_after_note(path: str) -> None:
    note(path)
    while True:
        pass


def spin_stubbornly(path: str) -> None:
    """Swallow whatever is raised, a few times."""
    note(path)
    for _ in range(3):
        try:
            while True:
                pass
        except BaseException:
            continue


def exit_at_once(status: int) -> None:
    print("about to go", file=sys.stderr)
    os._exit(status)


def crash() -> None:
    ctypes.string_at(0)


def detach_children(path: str) -> None:
    """Start a process that detaches itself twice, forget it, and wait."""
    script = f"(setsid sh -c 'sleep 3600 & echo $! >> {path}; echo $$ >> {path}; wait') &"
    subprocess.run(["sh", "-c", script], check=True)
    subprocess.run(["env", "-i", "setsid", "sh", "-c", f"(sleep 3600 & echo $! >> {path}) &"], check=True)
    time.sleep(3600)


def fork_and_wait(path: str) -> None:
    """Leave a fork of the compute process itself, with all its descriptors."""
    if os.fork() == 0:
        note(path)
        time.sleep(3600)
        os._exit(0)
    time.sleep(3600)


def wait_for_file(begun: str, gate: str) -> None:
    """Say that the task has begun, and end when the other file is there."""
    note(begun)
    while not os.path.exists(gate):
        time.sleep(0.001)
