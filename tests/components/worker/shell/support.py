"""What the tests of compute share: a recorder of its events, and the functions that tasks run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from gspc_trio.components.worker.messages import OpenJob, Submission
from gspc_trio.components.worker.shell.task_listener import TaskConnection
from gspc_trio.components.worker.verdict import NOTHING_PRINTED
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
    printed: tuple[bytes, bytes] = NOTHING_PRINTED
    changed: trio.Event = field(factory=trio.Event)

    def computed(self, outcomes: tuple[Outcome, ...]) -> None:
        self.outcomes.extend(outcomes)
        self._ring()

    def compute_lost(
        self, detail: str, begun: bool = True, printed: tuple[bytes, bytes] = NOTHING_PRINTED
    ) -> None:
        self.losses.append(detail)
        self.begun = begun
        self.printed = printed
        self._ring()

    def speaks(self, line: TaskConnection) -> None:
        line.close()

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
