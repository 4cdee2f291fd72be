"""Trio as a guest in the asyncio loop of the terminal: one thread, both kinds of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import trio
from outcome import Error, Outcome

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TrioGuest:
    """Runs one trio main function beside asyncio tasks, and lets these call trio functions.

    Args:
        crashed: told when the main function raised; not when it was stopped.
    """

    def __init__(self, crashed: Callable[[BaseException], None]) -> None:
        self._crashed = crashed
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._ready: asyncio.Event | None = None
        self._ended: asyncio.Future[None] | None = None

    def start(self, main: Callable[[], Awaitable[None]]) -> None:
        """Begin to run ``main``; to be called in the asyncio loop."""
        loop = asyncio.get_running_loop()
        self._ended, self._ready = loop.create_future(), asyncio.Event()
        trio.lowlevel.start_guest_run(
            self._run,
            main,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=loop.call_soon,
            done_callback=self._over,
            host_uses_signal_set_wakeup_fd=True,
        )

    async def stop(self) -> None:
        """Cancel everything in trio and wait until nothing is left."""
        if self._ended is None:
            return
        if self._token is not None and not self._ended.done():
            self._token.run_sync_soon(self._scope.cancel)
        await asyncio.wait([self._ended])

    async def call(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Run a trio function from an asyncio task and return what it returns.

        Raises:
            RuntimeError: trio has stopped.
            Exception: whatever the function raises.
        """
        assert self._ended is not None, "it was not started"
        assert self._ready is not None
        await self._ready.wait()
        if self._ended.done() or self._token is None or self._nursery is None:
            raise RuntimeError("the connection has been closed")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._token.run_sync_soon(self._nursery.start_soon, self._answer, answer, function, args)
        either: list[asyncio.Future[T] | asyncio.Future[None]] = [answer, self._ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise RuntimeError("the connection has been closed")
        return answer.result()

    async def _run(self, main: Callable[[], Awaitable[None]]) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                self._nursery, self._token = nursery, trio.lowlevel.current_trio_token()
                assert self._ready is not None
                self._ready.set()
                await main()
                nursery.cancel_scope.cancel()

    async def _answer(
        self, answer: asyncio.Future[T], function: Callable[[*Ts], Awaitable[T]], args: tuple[*Ts]
    ) -> None:
        try:
            result = await function(*args)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(result)

    def _over(self, how: Outcome[None]) -> None:
        assert self._ended is not None
        assert self._ready is not None
        self._nursery = self._token = None
        self._ready.set()
        if not self._ended.done():
            self._ended.set_result(None)
        if isinstance(how, Error):
            self._crashed(how.error)
