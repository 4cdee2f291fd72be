"""Copies of data that are made before anybody on the other host asks for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

import trio

from gspc_trio.iml.errors import ImlError
from gspc_trio.iml.shell.client import Iml
from gspc_trio.nursery.scopes.scope import open_scope

WAITING_MAX = 256
"""So many values wait to be copied to a host; more are not copied ahead."""


class CopiesAhead:
    """Copies data to hosts: to each of them one value after the other, so what is urgent has room beside it.

    The copies are cached ones: they go when there is no room. A value that cannot be copied is left out: who
    needs it asks for it, and is told what is wrong.

    Args:
        iml: the layer.
    """

    def __init__(self, iml: Iml) -> None:
        self._iml = iml
        self._lines: dict[str, deque[tuple[str, Callable[[], bool]]]] = {}
        self._news = trio.Event()

    def want(self, host: str, data_ids: Iterable[str], is_wanted: Callable[[], bool]) -> None:
        """Have values copied to a host, after those that are to be copied there already.

        Args:
            host: its name in the layer.
            data_ids: of the values.
            is_wanted: returns whether they still are, when their turn has come.
        """
        line = self._lines.setdefault(host, deque())
        for data_id in data_ids:
            if len(line) < WAITING_MAX:
                line.append((data_id, is_wanted))
        self._news.set()

    async def run(self) -> None:
        """Copy, until cancelled."""
        served = set[str]()
        async with open_scope() as hosts:
            while True:
                for host in self._lines.keys() - served:
                    served.add(host)
                    hosts.start_soon(self._copy_to, host)
                self._news = trio.Event()
                await self._news.wait()

    async def _copy_to(self, host: str) -> None:
        line = self._lines[host]
        while True:
            while line:
                data_id, is_wanted = line.popleft()
                if is_wanted():
                    with suppress(ImlError):
                        await self._iml.replicate(data_id, hosts=(host,), cached=True)
            await self._news.wait()
