"""Services as scopes: what is opened in a block is gone when the block is left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import trio


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Return the errors in a group, however nested; an error that is no group is its own only leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def only_error(error: BaseException) -> BaseException:
    """Return the one error in a group, leaving out cancellations; the group itself if there are several.

    A cancellation may be left out because whoever cancelled raises it again at the next checkpoint.
    """
    errors = [leaf for leaf in leaves(error) if not isinstance(leaf, trio.Cancelled)]
    if len(errors) == 1:
        return errors[0]
    if not errors:
        return next(leaves(error))
    return error


@asynccontextmanager
async def open_scope() -> AsyncIterator[trio.Nursery]:
    """Open a nursery that raises a single error as it is, not wrapped in a group.

    Helpers that need a background task use it, so that ``except PeerGone`` around them works.
    """
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        error = only_error(group)
        if error is group:
            raise
        # The error keeps its own cause and context; the group that carried it says nothing more.
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context
            del error, context


@asynccontextmanager
async def open_service(
    run: Callable[..., Awaitable[object]],
    *args: object,
    stop: Callable[[], None] | None = None,
    grace_s: float = 1.0,
) -> AsyncIterator[Any]:
    """Run a service for the time of a block.

    Args:
        run: ``await run(*args, task_status=...)``; it says ``task_status.started(value)`` when it is ready.
        args: of ``run``.
        stop: called when the block is left: the service takes nothing more and ends by itself. Without it the
            service is cancelled at once.
        grace_s: seconds that it may take to end by itself; then it is cancelled.

    Yields:
        The value that the service started with.

    Raises:
        Whatever ``run`` or the block raise; a single error is not wrapped in a group. When the service ends
        with an error the block is cancelled.
    """
    async with open_scope() as nursery:
        ended = trio.Event()

        async def serve(task_status: trio.TaskStatus[Any]) -> None:
            try:
                await run(*args, task_status=task_status)
            finally:
                ended.set()

        value = await nursery.start(serve)
        try:
            yield value
        finally:
            if stop is not None:
                stop()
                with trio.move_on_after(grace_s):
                    await ended.wait()
            nursery.cancel_scope.cancel()
