"""Wakes tasks that wait for something new, whatever it is: they look for themselves."""

from __future__ import annotations

import trio


class News:
    """Any number of tasks wait; who has something new tells all of them."""

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def tell(self) -> None:
        """Wake all who wait now; costs next to nothing where nobody does."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Return when something new is told of after this call."""
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()
