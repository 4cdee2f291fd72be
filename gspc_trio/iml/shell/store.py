"""The shell of a host's store: makes, fills and gives up segments, moves parts to and from its spill file."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

import trio

from gspc_trio.core.machine import Performer, performs
from gspc_trio.iml.errors import error_of
from gspc_trio.iml.layout import check_range
from gspc_trio.iml.segment import Segment, SpillFile
from gspc_trio.iml.shell.platform import platform
from gspc_trio.iml.store import Store
from gspc_trio.iml.store_events import (
    Create,
    Drop,
    Evict,
    Granted,
    Key,
    LoadIn,
    MakeSegment,
    Moved,
    Pin,
    PinUse,
    Retire,
    Seal,
    SegmentFree,
    SegmentHeld,
    SpillOut,
    StoreAction,
    StoreEvent,
    StoreRefused,
    Unpin,
)
from gspc_trio.nursery.scopes.drive import CHECK_VARIABLE
from gspc_trio.nursery.scopes.observe import observed

LOOK_AGAIN_S = 0.05
"""How often to look whether a segment that somebody still maps has become free."""

IN_THREAD_BYTES_MIN = 1 << 20
"""More bytes than this are copied in a thread."""

POOL_SHARE = 4
"""At most one part in so many of the memory is kept as idle segments."""


class _Asked:
    """A question to the machine, and its answer."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.answer: Granted | StoreRefused | None = None
        self.done: trio.Event | None = None


class StoreShell(Performer[StoreAction]):
    """Drives a host's store.

    It feeds the machine itself instead of having :func:`~gspc_trio.nursery.scopes.drive.drive` do it: whoever
    asks takes the answer before any other task runs, and that is needed before a driver's task would have
    begun to wait for events.

    Args:
        machine: decides.
        spill_directory: for the spill file, made when it is first needed.
        nursery: for what takes time.
        evicted: told when a cached copy was dropped.
    """

    def __init__(
        self, machine: Store, spill_directory: str, nursery: trio.Nursery, evicted: Callable[[Key], None]
    ) -> None:
        self.machine = machine
        self._handle = observed(machine).handle
        self.versions: dict[Key, int] = {}
        self._last_version = 0
        self._spill_directory = spill_directory
        self._nursery = nursery
        self._evicted = evicted
        self._check = os.environ.get(CHECK_VARIABLE) == "1"
        self._segments: dict[int, Segment] = {}
        self._platform = platform()
        self._pool = self._platform.pool(machine.memory_bytes // POOL_SHARE)
        self._spill: SpillFile | None = None
        self._asks: dict[int, _Asked] = {}
        self._abandoned: dict[int, Create | Pin] = {}  # asks whose asker was cancelled
        self._last_ask = 0
        self._events: deque[StoreEvent] = deque()
        self._handling = False
        self._held: dict[int, None] = {}
        self._broken: dict[int, str] = {}  # segments that could not be made

    # What servers ask

    async def create(
        self,
        key: Key,
        size_bytes: int,
        *,
        writing: bool = False,
        cached: bool = False,
        write_token: str = "",
    ) -> None:
        """Make a part; with ``writing`` every byte of it is written before it is sealed.

        Others than this server may write it only with ``write_token``.

        Raises:
            NoRoom: it does not fit.
            DuplicateData: it is here already.
        """
        self._change(key)
        await self._ask(lambda ask: Create(ask, key, size_bytes, writing, cached, write_token))

    async def pin(self, key: Key, use: PinUse) -> Granted:
        """Let a part stay for some use, until :meth:`unpin`.

        Raises:
            UnknownData: it is not here.
            NoRoom: it cannot be brought back into memory.
        """
        return await self._ask(lambda ask: Pin(ask, key, use))

    def pin_now(self, key: Key, use: PinUse) -> Granted | None:
        """Pin, or return None if that takes time; then it may be on its way.

        Raises:
            UnknownData, NoRoom: as :meth:`pin`.
        """
        number, asked = self._begin(lambda ask: Pin(ask, key, use))
        if asked.answer is None:
            self._abandoned[number] = Pin(number, key, use)
            return None
        return _granted_of(asked.answer)

    def unpin(self, key: Key, use: PinUse) -> None:
        """End a pin."""
        self._feed(Unpin(key, use))

    def seal(self, key: Key, cached: bool | None = None) -> None:
        """Let a part be read that was written."""
        self._feed(Seal(key, cached))

    def drop(self, key: Key) -> None:
        """Let nobody find the part any more."""
        self.versions.pop(key, None)
        self._feed(Drop(key))

    def segment_of(self, granted: Granted) -> Segment:
        """Return the segment of a part pinned for a map."""
        return self._segments[granted.segment]

    async def writer(self, key: Key, write_token: str | None = None) -> tuple[int, int]:
        """Return a new descriptor for writing a part that is being written, and its size.

        Raises:
            UnknownData, WrongJob: as :meth:`write`.
        """
        await trio.lowlevel.checkpoint()
        segment = self.machine.segment_being_written(key, write_token)
        return self._segments[segment].writer(), self._segments[segment].size_bytes

    def write(self, key: Key, offset: int, data: bytes | memoryview, write_token: str | None = None) -> None:
        """Write into a part that is being written.

        Args:
            key: which part.
            offset: where.
            data: the bytes.
            write_token: what the writer shows; None: it is this server itself.

        Raises:
            UnknownData: it is not being written here.
            WrongJob: somebody else is writing it.
            BadRange: it does not go there.
        """
        segment = self._segments[self.machine.segment_being_written(key, write_token)]
        check_range(key[0], segment.size_bytes, offset, len(data))
        os.pwrite(segment.descriptor, data, offset)

    def copy_written(self, source: Key, source_token: str, key: Key, offset: int, write_token: str) -> int:
        """Copy all of a part that is being written into another one; return how many bytes that were.

        Args:
            source: which part, of a few MiB: nothing else happens meanwhile.
            source_token: what its writer shows.
            key, offset, write_token: where they go, as for :meth:`write`.

        Raises:
            UnknownData, WrongJob, BadRange: as :meth:`write`, for both parts.
        """
        there = self._segments[self.machine.segment_being_written(source, source_token)]
        here = self._segments[self.machine.segment_being_written(key, write_token)]
        check_range(key[0], here.size_bytes, offset, there.size_bytes)
        _copy_bytes(there.descriptor, 0, here.descriptor, offset, there.size_bytes)
        return there.size_bytes

    async def read(self, key: Key, offset: int, size_bytes: int) -> tuple[bytes, int]:
        """Return bytes of a part, wherever it lies, and the part's version.

        Raises:
            UnknownData: it is not here.
            BadRange: it has no such bytes.
            DataLost: the disk does not give them back.
        """
        there = self.machine.size_of(key)
        if there is None:
            size_bytes = 0  # it is refused when it is pinned
        else:
            check_range(key[0], there, offset, size_bytes)
        data = bytearray(size_bytes)
        version = await self.read_into(key, offset, memoryview(data))
        return bytes(data), version

    def read_now(self, key: Key, offset: int, size_bytes: int) -> tuple[bytes, int] | None:
        """Do as :meth:`read` with a few bytes, or return None if that takes time."""
        granted = self.pin_now(key, PinUse.READ)
        if granted is None:
            return None
        try:
            data = bytearray(size_bytes)
            version = self._read(granted, offset, memoryview(data))
            return bytes(data), version
        finally:
            self.unpin(key, PinUse.READ)

    async def read_into(self, key: Key, offset: int, target: memoryview) -> int:
        """Do as :meth:`read`, into ``target``; return the part's version."""
        granted = await self.pin(key, PinUse.READ)
        try:
            if granted.segment or len(target) < IN_THREAD_BYTES_MIN:
                return self._read(granted, offset, target)
            return await self._platform.in_thread(self._read, granted, offset, target)
        finally:
            self.unpin(key, PinUse.READ)

    def _read(self, granted: Granted, offset: int, target: memoryview) -> int:
        check_range(granted.key[0], granted.size_bytes, offset, len(target))
        descriptor, begin = self._where(granted)
        if os.preadv(descriptor, [target], begin + offset) != len(target):
            raise error_of("DataLost", f"the spill file of host {self.machine.host} is too short")
        return self.versions.get(granted.key, 0)

    async def apply(self, key: Key, source: Key, offset: int) -> None:
        """Copy all of the part ``source`` over the part ``key`` from ``offset``.

        Raises:
            UnknownData: one of them is not here.
            OSError: the disk is full or broken.
        """
        self.seal(source)
        new = await self.pin(source, PinUse.READ)
        try:
            old = await self.pin(key, PinUse.CHANGE)
            try:
                here, there = self._where(new), self._where(old)
                copy = (here[0], here[1], there[0], there[1] + offset, new.size_bytes)
                if new.size_bytes < IN_THREAD_BYTES_MIN:
                    _copy_bytes(*copy)
                else:
                    with trio.CancelScope(shield=True):  # half a copy is never seen
                        await self._platform.in_thread(_copy_bytes, *copy)
                if key in self.versions:
                    self._change(key)
            finally:
                self.unpin(key, PinUse.CHANGE)
        finally:
            self.unpin(source, PinUse.READ)

    def _change(self, key: Key) -> None:
        """Give the part a version that nothing had before, not even other data under its id."""
        self._last_version += 1
        self.versions[key] = self._last_version

    def close(self) -> None:
        """Give up all memory."""
        self._pool.close()
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()
        if self._spill is not None:
            self._spill.close()

    @property
    def pooled_bytes(self) -> int:
        """Bytes of the segments that are kept for the next parts."""
        return self._pool.size_bytes

    # The machine

    def _begin(self, event: Callable[[int], Create | Pin]) -> tuple[int, _Asked]:
        self._last_ask += 1
        number = self._last_ask
        asked = self._asks[number] = _Asked()
        self._feed(event(number))
        return number, asked

    async def _ask(self, event: Callable[[int], Create | Pin]) -> Granted:
        number, asked = self._begin(event)
        if asked.answer is None:
            asked.done = trio.Event()
            try:
                await asked.done.wait()
            except trio.Cancelled:
                if asked.answer is None:
                    self._abandoned[number] = event(number)
                elif isinstance(asked.answer, Granted):
                    self._give_back(asked.answer, event(number))
                raise
        assert asked.answer is not None
        return _granted_of(asked.answer)

    def _give_back(self, granted: Granted, event: Create | Pin) -> None:
        if isinstance(event, Pin):
            self._feed(Unpin(granted.key, event.use))
        else:
            self._feed(Drop(granted.key))

    def _feed(self, event: StoreEvent) -> None:
        """Give an event to the machine; one that an action leads to waits for its turn."""
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                for action in self._handle(self._events.popleft(), trio.current_time()):
                    self.perform(action)
                if self._check:
                    self.machine.check()
        finally:
            self._handling = False

    @performs(Granted)
    def _granted(self, action: Granted) -> None:
        problem = self._broken.pop(action.segment, None)
        if problem is None:
            self._answer(action)
        else:
            self._answer(StoreRefused(action.ask, "NoRoom", problem))
            self._events.append(Drop(action.key))

    @performs(StoreRefused)
    def _refused(self, action: StoreRefused) -> None:
        self._answer(action)

    def _answer(self, answer: Granted | StoreRefused) -> None:
        asked = self._asks.pop(answer.ask)
        abandoned = self._abandoned.pop(answer.ask, None)
        if abandoned is not None:
            if isinstance(answer, Granted):
                self._give_back(answer, abandoned)
            return
        asked.answer = answer
        if asked.done is not None:
            asked.done.set()

    @performs(MakeSegment)
    def _make_segment(self, action: MakeSegment) -> None:
        try:
            self._segments[action.segment] = self._pool.make(
                action.size_bytes, overwritten=action.overwritten, spare_bytes=action.spare_bytes
            )
        except OSError as error:
            host = self.machine.host
            self._broken[action.segment] = f"host {host} has no room: {error.strerror}"

    @performs(Retire)
    def _retire(self, action: Retire) -> None:
        segment = self._segments.get(action.segment)
        if segment is None:
            self._broken.pop(action.segment, None)
            self._events.append(SegmentFree(action.segment))
        elif not segment.is_shared():
            self._reclaim(action.segment)
        else:
            self._events.append(SegmentHeld(action.segment))
            if not self._held:
                self._nursery.start_soon(self._look_again)
            self._held[action.segment] = None

    def _reclaim(self, number: int) -> None:
        segment = self._segments.pop(number)
        machine = self.machine
        self._pool.give(segment, machine.memory_bytes - machine.used_bytes + segment.size_bytes)
        self._events.append(SegmentFree(number))

    async def _look_again(self) -> None:
        """Look at the segments that processes still map, until there are none."""
        while self._held:
            await trio.sleep(LOOK_AGAIN_S)
            for number in [n for n in self._held if not self._segments[n].is_shared()]:
                del self._held[number]
                segment = self._segments.pop(number)
                segment.close()
                self._feed(SegmentFree(number))

    @performs(Evict)
    def _evict(self, action: Evict) -> None:
        self.versions.pop(action.key, None)
        self._evicted(action.key)

    @performs(SpillOut, LoadIn)
    def _start_move(self, action: SpillOut | LoadIn) -> None:
        self._nursery.start_soon(self._move, action)

    async def _move(self, action: SpillOut | LoadIn) -> None:
        problem = ""
        try:
            if action.segment in self._broken:
                raise OSError(self._broken.pop(action.segment))
            if self._spill is None:
                self._spill = self._platform.spill_file(self._spill_directory)
            spill = self._spill
            work = spill.write_from if isinstance(action, SpillOut) else spill.read_into
            with trio.CancelScope(shield=True):
                await self._platform.in_thread(work, self._segments[action.segment], action.offset)
        except OSError as error:
            problem = error.strerror or str(error)
        self._feed(Moved(action.key, problem))

    def _where(self, granted: Granted) -> tuple[int, int]:
        """Return the descriptor of a pinned part, and where in it the part begins."""
        if granted.segment:
            return self._segments[granted.segment].descriptor, 0
        assert self._spill is not None
        return self._spill.descriptor, granted.offset


def _granted_of(answer: Granted | StoreRefused) -> Granted:
    if isinstance(answer, StoreRefused):
        raise error_of(answer.kind, answer.message)
    return answer


def _copy_bytes(source: int, source_offset: int, target: int, target_offset: int, size_bytes: int) -> None:
    done = 0
    while done < size_bytes:
        data = os.pread(source, min(size_bytes - done, 1 << 22), source_offset + done)
        if not data:
            raise OSError("the new bytes are not there")
        done += os.pwrite(target, data, target_offset + done)
