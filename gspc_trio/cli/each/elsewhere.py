"""The commands of a list as tasks of a run-time system that runs already."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from gspc_trio.components.embed import open_rts
from gspc_trio.compute.commands import Fields, run_command_plainly
from gspc_trio.executor.trio_pool import TaskPool, open_command_pool


@asynccontextmanager
async def open_tasks(rts: Path) -> AsyncIterator[CommandTasks]:
    """Tasks on the hosts of a run-time system, as long as the block runs.

    Args:
        rts: connection file of the run-time system.

    Raises:
        ConnectionFileError, ConnectFailed: there is no such running run-time system.
    """
    async with open_rts(connection_file=rts) as system, open_command_pool(system) as pool:
        yield CommandTasks(pool)


class CommandTasks:
    """Has tasks run commands.

    Args:
        pool: that runs them.
    """

    def __init__(self, pool: TaskPool) -> None:
        self._pool = pool

    def capacity(self) -> int:
        """Return how many can run at a time."""
        return self._pool.capacity()

    async def outcomes(
        self, items: AsyncIterable[Fields], *, ordered: bool, in_flight: int | None
    ) -> AsyncGenerator[tuple[Fields, Fields | BaseException], None]:
        """Yield the fields of each command beside how it has ended: fields, or why there are none."""
        outcomes = self._pool.outcomes(run_command_plainly, items, ordered=ordered, in_flight=in_flight)
        async with aclosing(outcomes):
            async for outcome in outcomes:
                yield outcome
