"""Data that processes of a server's host make there: the coordinator hears of it while it is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from gspc_trio.core.ids import Counter
from gspc_trio.iml import messages as x
from gspc_trio.iml.errors import ImlError
from gspc_trio.iml.layout import Layout, check_size
from gspc_trio.iml.shell.store import StoreShell

BROKEN_MAX = 1_000
"""Of so many promises it is remembered that they could not be kept."""


class _Told:
    """What the coordinator was told of some data, and what it has answered."""

    __slots__ = ("answered", "error", "sent")

    def __init__(self) -> None:
        self.sent = trio.Event()
        self.answered = trio.Event()
        self.error: ImlError | None = None


class _Promise:
    """Of some data: whether it is kept, or why it cannot be."""

    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: ImlError | None = None


class OwnData:
    """What a memory server makes without asking first: whoever writes it waits for nobody.

    Args:
        host: of the server.
        store: has the parts.
        ask: asks the coordinator; what is asked earlier arrives earlier.
        nursery: in which it is told.
        drop: drops what the coordinator does not take.
        promises: whether data may be read here before the coordinator has heard of it. If that is in this
            process it hears at once.

    Attributes:
        prefix: of the ids, as the coordinator has said; "" before.
    """

    def __init__(
        self,
        host: str,
        store: StoreShell,
        ask: Callable[[x.LayerRequest], Awaitable[object]],
        nursery: trio.Nursery,
        drop: Callable[[str], None],
        *,
        promises: bool = True,
    ) -> None:
        self.prefix: str = ""
        self.promises: bool = promises
        self._host = host
        self._store = store
        self._ask = ask
        self._nursery = nursery
        self._drop = drop
        self._numbers = Counter()
        self._told: dict[str, _Told] = {}
        self._promised: dict[str, _Promise] = {}

    async def begin(self, job: str, size_bytes: int) -> str:
        """Make room for data, to be written; return its id.

        Raises:
            BadSize: less than 1 byte.
            NoRoom: it does not fit.
        """
        check_size(size_bytes)
        data_id = f"{self.prefix}.{self._numbers.next()}"
        await self._store.create((data_id, 0), size_bytes, writing=True)
        request = x.Alloc(
            job, size_bytes, Layout((self._host,)), writing=True, data_id=data_id, is_there=True
        )
        told = self._told[data_id] = _Told()
        self._nursery.start_soon(self._tell, request, told)
        return data_id

    async def _tell(self, request: x.Alloc, told: _Told) -> None:
        told.sent.set()  # nothing else runs before the question is on its way
        try:
            await self._ask(request)
        except ImlError as error:
            told.error = error
            self._drop(request.data_id)
        finally:
            told.answered.set()

    async def commit(self, data_id: str) -> None:
        """Let it be read.

        Raises:
            ImlError: the coordinator takes it not, or not any more; then it is gone.
        """
        told = self._told.pop(data_id, None)
        if told is not None:
            await told.sent.wait()
        try:
            await self._ask(x.CommitData(data_id))
        except ImlError:
            if told is not None:
                await told.answered.wait()
                if told.error is not None:
                    raise told.error from None
            raise

    async def abort(self, data_id: str) -> None:
        """Give up what is being written.

        Raises:
            LayerGone: with all else.
        """
        told = self._told.pop(data_id, None)
        if told is not None:
            await told.sent.wait()
        await self._ask(x.AbortData(data_id))

    def promise(self, data_id: str) -> bool:
        """Let it be read here at once, and by others as soon as the coordinator knows of it.

        Returns:
            False if it is none that was begun here, or nothing is promised.
        """
        if not self.promises or data_id not in self._told:
            return False
        self._store.seal((data_id, 0))
        promise = self._promised[data_id] = _Promise()
        self._nursery.start_soon(self._keep, data_id, promise)
        return True

    async def _keep(self, data_id: str, promise: _Promise) -> None:
        try:
            await self.commit(data_id)
            del self._promised[data_id]
        except ImlError as error:
            promise.error = error
            broken = [it for it, one in self._promised.items() if one.error is not None]
            for one in broken[:-BROKEN_MAX]:
                del self._promised[one]
        finally:
            promise.done.set()

    async def settle(self, data_id: str) -> bool:
        """Wait until what was promised is kept.

        Returns:
            False if the data was not begun here: by another server of this host, or by none.

        Raises:
            ImlError: it cannot be kept; the data is gone.
        """
        promise = self._promised.get(data_id)
        if promise is None:
            return bool(self.prefix) and data_id.startswith(f"{self.prefix}.")
        await promise.done.wait()
        if promise.error is not None:
            raise promise.error
        return True
