"""The commands of a list as tasks of a run-time system that runs already."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from gspc_trio.components.embed import open_rts
from gspc_trio.executor.trio_pool import TaskPool, open_command_pool


@asynccontextmanager
async def open_tasks(run: Callable[[Any], Any], rts: Path) -> AsyncIterator[CommandTasks]:
    """Tasks on the hosts of a run-time system, as long as the block runs.

    Args:
        run: a function that can be imported; tasks call it with each item.
        rts: connection file of the run-time system.

    Raises:
        ConnectionFileError, ConnectFailed: there is no such running run-time system.
    """
    async with open_rts(connection_file=rts) as system, open_command_pool(system) as pool:
        yield CommandTasks(pool, run)


class CommandTasks:
    """Has tasks run a function on items.

    Args:
        pool: that runs them.
        run: the function.
    """

    def __init__(self, pool: TaskPool, run: Callable[[Any], Any]) -> None:
        self._pool = pool
        self._run = run

    def capacity(self) -> int:
        """Return how many items can run at a time."""
        return self._pool.capacity()

    async def outcomes(
        self, items: AsyncIterable[Any], *, ordered: bool, in_flight: int | None
    ) -> AsyncGenerator[tuple[Any, Any], None]:
        """Yield each item beside what came of it: its result, or its exception; see ``TaskPool.outcomes``."""
        outcomes = self._pool.outcomes(self._run, items, ordered=ordered, in_flight=in_flight)
        async with aclosing(outcomes):
            async for outcome in outcomes:
                yield outcome
