"""A server's connection with its launcher without trio: it lives in a thread of its own.

So pings are answered while the server computes, for as long as it lets other threads of Python run.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import trio

from gspc_trio.components.launcher.events import ClientMoved
from gspc_trio.nursery.scopes.scope import only_error
from gspc_trio.study.server import Study, StudyOver, open_study

JOIN_S = 10.0
"""The end of a connection takes no longer."""

T = TypeVar("T")


class BlockingStudy:
    """A server's side of its study, for programs without trio; any thread may use it.

    Args:
        file: that says where the launcher is; None: the one in the environment.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._study: Study | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._until: trio.CancelScope | None = None
        self._failure: BaseException | None = None
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gspc-study", daemon=True)

    def start(self) -> None:
        """Return when the connection is there.

        Raises:
            StudyOver: there is no launcher, or it refuses.
        """
        self._thread.start()
        try:
            self._up.wait()
        except BaseException:  # Ctrl-C
            self.close()
            raise
        if self._study is None:
            assert self._failure is not None
            raise self._failure

    def close(self) -> None:
        """Send what was said, and end the connection."""
        token, until = self._token, self._until
        if token is not None and until is not None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(until.cancel)
        self._thread.join(JOIN_S)

    def submit(self, client_ids: int | Iterable[int], command: Sequence[str]) -> None:
        """Have clients started; see :meth:`Study.submit`."""
        self._call(Study.submit, client_ids, command)

    def cancel(self, client_id: int) -> None:
        """Have a client ended; see :meth:`Study.cancel`."""
        self._call(Study.cancel, client_id)

    def jobs(self) -> dict[int, ClientMoved]:
        """Return what was told of each client last; see :meth:`Study.jobs`."""
        assert self._study is not None
        return self._study.jobs()

    @property
    def stale(self) -> str:
        """Why the states of clients are old; see :attr:`Study.stale`."""
        assert self._study is not None
        return self._study.stale

    def next_change(self, timeout_s: float | None = None) -> ClientMoved | None:
        """Wait for the next change of a client's state, and return it; None if there was none in this time.

        Args:
            timeout_s: seconds to wait, None for ever; 0 for what was told already.

        Raises:
            StudyOver: the connection is over, and all that was told before was returned.
        """
        return self._call(_next_change, timeout_s)

    def changes(self) -> Iterator[ClientMoved]:
        """Yield changes of states of clients until all have ended; see :meth:`Study.changes`."""
        while (change := self._call(Study.change_or_end)) is not None:
            yield change

    def done(self) -> None:
        """Say that the study is done; see :meth:`Study.done`."""
        self._call(Study.done)

    def _call(self, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Run something in the thread of the connection."""
        assert self._token is not None
        try:
            return trio.from_thread.run(function, self._study, *arguments, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled) as error:
            raise StudyOver("the connection with the launcher was closed here") from error

    # The thread of the connection ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._failure = only_error(error)
        finally:
            self._up.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._until:
            async with open_study(self._file) as self._study:
                self._up.set()
                await trio.sleep_forever()


async def _next_change(study: Study, timeout_s: float | None) -> ClientMoved | None:
    with trio.move_on_after(math.inf if timeout_s is None else timeout_s):
        return await study.next_change()
    return None
