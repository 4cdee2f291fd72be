"""The machine of a memory server: it decides what stays in memory and what goes to the spill file.

A part lies in a segment of shared memory or in the spill file. When memory is full, cached copies are dropped
and the parts that nobody uses longest go to the spill file; what is to be mapped comes back. Segments of
parts that were dropped count until the shell says that nobody maps them any more.
"""

from __future__ import annotations

from collections import deque

from attrs import frozen

from gspc_trio.core.allocator import Allocator
from gspc_trio.core.ids import Counter
from gspc_trio.core.machine import IllegalEvent, MachineBase, Tick, handles
from gspc_trio.iml.errors import UnknownData, WrongJob
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
from gspc_trio.iml.store_parts import PAGE_BYTES, MemoryRequest, PartPlace, StoredPart, in_pages


@frozen
class StoreStatistics:
    """What a memory server has.

    Attributes:
        parts: their number.
        used_bytes: memory in use.
        mapped_after_free_bytes: the part of it that was freed, and that somebody still has mapped.
        spilled_bytes: size of the parts that are in the spill file.
    """

    parts: int
    used_bytes: int
    mapped_after_free_bytes: int
    spilled_bytes: int


class Store(MachineBase[StoreEvent, StoreAction]):
    """Machine of a host's memory server.

    Args:
        host: its name, for messages.
        memory_bytes: how much shared memory it may use.
        spill_bytes: how much may go to the spill file; 0: nothing.
    """

    noun = "a memory server"

    def __init__(self, host: str, memory_bytes: int, spill_bytes: int = 0) -> None:
        super().__init__()
        self.host = host
        self.memory_bytes = memory_bytes
        self.spill_bytes = spill_bytes
        self.used_bytes: int = 0
        self._spill = Allocator(spill_bytes, PAGE_BYTES) if spill_bytes >= PAGE_BYTES else None
        self._parts: dict[Key, StoredPart] = {}
        self._gone: list[StoredPart] = []  # dropped, but still pinned or moved
        self._segments: dict[int, int] = {}  # -> bytes, also of those that are retired
        self._retired: dict[int, bool] = {}  # -> whether somebody holds it
        self._numbers = Counter()
        self._clock = Counter()
        self._wants: deque[MemoryRequest] = deque()

    # The machine's contract

    def settle(self) -> None:
        """Serve who waits for room: any event may have made some."""
        self._serve()

    def deadline(self) -> float | None:
        """Nothing here waits for the clock."""
        return None

    def check(self) -> None:
        """Assert every invariant."""
        assert self.used_bytes == sum(self._segments.values()), "memory is miscounted"
        assert self.used_bytes <= self.memory_bytes, "more memory in use than there may be"
        everything = [*self._parts.values(), *self._gone]
        mine = [part.segment for part in everything if part.segment]
        assert len(set(mine)) == len(mine), "two parts in one segment"
        assert set(mine) | self._retired.keys() == self._segments.keys(), "a segment that belongs to nobody"
        assert not set(mine) & self._retired.keys(), "a retired segment is in use"
        offsets = sorted(part.offset for part in everything if part.offset >= 0)
        pieces = sorted(self._spill.pieces) if self._spill is not None else []
        assert offsets == pieces, "room in the spill file that belongs to nobody"
        for part in everything:
            assert bool(part.segment) == (part.place is not PartPlace.SPILLED), "where is it?"
            assert (part.offset >= 0) == (part.place is not PartPlace.MEMORY), "where is it?"
            assert part.pins >= part.changing + part.readers, "changed or read, but not pinned"
            assert not (part.changing and part.readers), "read while it is changed"
            assert not part.gone or part.pins or part.place in (PartPlace.SPILLING, PartPlace.LOADING), (
                "kept for nothing"
            )
            assert not part.gone or not part.waiting, "somebody waits for a part that is gone"
        assert not self._wants or self._coming(), "somebody waits for room that nobody makes"
        assert not self.actions, "an action was not returned"

    def statistics(self) -> StoreStatistics:
        """Return what it has now."""
        spilled = [part for part in self._parts.values() if part.place is PartPlace.SPILLED]
        return StoreStatistics(
            parts=len(self._parts),
            used_bytes=self.used_bytes,
            mapped_after_free_bytes=sum(self._segments[segment] for segment in self._retired),
            spilled_bytes=sum(part.size_bytes for part in spilled),
        )

    @property
    def size(self) -> int:
        """Number of parts that it has."""
        return len(self._parts)

    def size_of(self, key: Key) -> int | None:
        """Return the size of a part, None if there is no such part."""
        part = self._parts.get(key)
        return None if part is None else part.size_bytes

    def segment_being_written(self, key: Key, write_token: str | None = None) -> int:
        """Return the segment of a part that is being written.

        Args:
            key: which part.
            write_token: what the writer shows; None: it is this server itself.

        Raises:
            UnknownData: no such part is being written here.
            WrongJob: somebody else is writing it.
        """
        part = self._parts.get(key)
        if part is None or not part.writing:
            raise UnknownData(f"{_name(key)} is not being written on host {self.host}")
        if write_token is not None and write_token != (part.write_token or None):
            raise WrongJob(f"{_name(key)} is being written by another client")
        return part.segment

    # Events

    @handles(Tick)
    def _tick(self, event: Tick) -> None:
        """Nothing waits for the clock."""

    @handles(Create)
    def _create(self, event: Create) -> None:
        if event.key in self._parts:
            self._refuse(event.ask, "DuplicateData", f"host {self.host} holds {_name(event.key)} already")
            return
        self._wants.append(MemoryRequest(in_pages(event.size_bytes), create=event))

    @handles(Seal)
    def _seal(self, event: Seal) -> None:
        part = self._parts.get(event.key)
        if part is None:
            return
        part.writing = False
        part.cached = part.cached if event.cached is None else event.cached
        self._serve_pins(part)

    @handles(Pin)
    def _pin(self, event: Pin) -> None:
        part = self._parts.get(event.key)
        if part is None:
            self._refuse(event.ask, "UnknownData", f"host {self.host} does not hold {_name(event.key)}")
            return
        part.waiting.append(event)
        self._serve_pins(part)

    @handles(Unpin)
    def _unpin(self, event: Unpin) -> None:
        candidates = [part for part in (*self._gone, self._parts.get(event.key)) if part is not None]
        part = next((part for part in candidates if part.key == event.key and part.has_pin(event.use)), None)
        if part is None:
            raise IllegalEvent(f"{_name(event.key)} is not pinned")
        part.pins -= 1
        part.readers -= event.use is PinUse.READ
        if event.use is PinUse.CHANGE:
            part.changing = False
        if part.gone:
            self._bury(part)
        else:
            self._serve_pins(part)

    @handles(Drop)
    def _drop(self, event: Drop) -> None:
        part = self._parts.pop(event.key, None)
        if part is None:
            for want in [want for want in self._wants if want.create and want.create.key == event.key]:
                assert want.create is not None
                self._wants.remove(want)
                self._refuse(want.create.ask, "UnknownData", f"{_name(event.key)} was dropped meanwhile")
            return
        part.gone = True
        for pin in part.waiting:
            self._refuse(pin.ask, "UnknownData", f"{_name(event.key)} was dropped meanwhile")
        part.waiting.clear()
        for want in [want for want in self._wants if want.part is part]:
            self._wants.remove(want)
        self._gone.append(part)
        self._bury(part)

    @handles(Moved)
    def _moved(self, event: Moved) -> None:
        moving = (PartPlace.SPILLING, PartPlace.LOADING)
        everything = [*self._gone, *self._parts.values()]
        part = next((part for part in everything if part.key == event.key and part.place in moving), None)
        if part is None:
            raise IllegalEvent(f"{_name(event.key)} is not being moved")
        spilling = part.place is PartPlace.SPILLING
        to_disk = spilling and not event.problem and not part.pins and not part.waiting
        if not spilling and event.problem:
            to_disk = True
        if to_disk:
            part.place = PartPlace.SPILLED
            self._retire(part)
        else:
            part.place = PartPlace.MEMORY
            self._free_spill(part)
        if part.gone:
            self._bury(part)
            return
        if not spilling and event.problem:
            for pin in part.waiting:
                self._refuse(pin.ask, "NoRoom", f"{_name(part.key)} cannot be read back: {event.problem}")
            part.waiting.clear()
        if spilling and event.problem:
            self._refuse_first(f"it cannot be made: {event.problem}")
        self._serve_pins(part)

    @handles(SegmentFree)
    def _segment_free(self, event: SegmentFree) -> None:
        if self._retired.pop(event.segment, None) is None:
            raise IllegalEvent(f"segment {event.segment} was not retired")
        self.used_bytes -= self._segments.pop(event.segment)

    @handles(SegmentHeld)
    def _segment_held(self, event: SegmentHeld) -> None:
        if event.segment not in self._retired:
            raise IllegalEvent(f"segment {event.segment} was not retired")
        self._retired[event.segment] = True

    # Pins

    def _serve_pins(self, part: StoredPart) -> None:
        """Grant the pins that wait, in order, until one cannot be granted yet."""
        while part.waiting:
            pin = part.waiting[0]
            if part.writing or part.place is PartPlace.LOADING:
                return
            if part.changing and pin.use is not PinUse.MAP:
                return
            if pin.use is PinUse.CHANGE and (part.readers or part.place is PartPlace.SPILLING):
                return
            if pin.use is PinUse.MAP and part.place is PartPlace.SPILLED:
                if not part.pins and not any(want.part is part for want in self._wants):
                    self._wants.append(MemoryRequest(in_pages(part.size_bytes), part=part))
                return
            part.waiting.popleft()
            part.pins += 1
            part.used = self._clock.next()
            part.readers += pin.use is PinUse.READ
            part.changing = part.changing or pin.use is PinUse.CHANGE
            on_disk = part.place is PartPlace.SPILLED
            segment, offset = (0, part.offset) if on_disk else (part.segment, 0)
            self.actions.append(Granted(pin.ask, part.key, part.size_bytes, segment, offset))

    # Room

    def _serve(self) -> None:
        """Give room to those that wait, in order; refuse the first if there will be none for it."""
        while self._wants:
            want = self._wants[0]
            if self.used_bytes + want.room_bytes <= self.memory_bytes:
                self._wants.popleft()
                self._give(want)
            elif not self._make_room(want):
                if self._coming():
                    return
                self._refuse_first("")
            else:
                return

    def _give(self, want: MemoryRequest) -> None:
        segment = self._numbers.next()
        self._segments[segment] = want.room_bytes
        self.used_bytes += want.room_bytes
        spare_bytes = self.memory_bytes - self.used_bytes
        if want.create is not None:
            event = want.create
            self.actions.append(MakeSegment(segment, event.size_bytes, spare_bytes, event.writing))
            part = StoredPart(
                event.key,
                event.size_bytes,
                segment,
                event.writing,
                event.cached,
                self._clock.next(),
                event.write_token,
            )
            self._parts[event.key] = part
            self.actions.append(Granted(event.ask, event.key, event.size_bytes, segment))
        else:
            assert want.part is not None
            part = want.part
            self.actions.append(MakeSegment(segment, part.size_bytes, spare_bytes, True))
            part.segment, part.place = segment, PartPlace.LOADING
            self.actions.append(LoadIn(part.key, segment, part.offset, part.size_bytes))

    def _coming(self) -> int:
        """Bytes of memory that are on their way to be free."""
        spilling = [part for part in (*self._parts.values(), *self._gone) if part.place is PartPlace.SPILLING]
        coming = sum(in_pages(part.size_bytes) for part in spilling if not (part.pins or part.waiting))
        return coming + sum(self._segments[segment] for segment, held in self._retired.items() if not held)

    def _make_room(self, want: MemoryRequest) -> bool:
        """Drop or spill until there will be room; return False, having done nothing, if there cannot be."""
        missing = self.used_bytes + want.room_bytes - self.memory_bytes - self._coming()
        idle = [
            part
            for part in self._parts.values()
            if part.place is PartPlace.MEMORY and not (part.pins or part.waiting or part.writing)
        ]
        idle.sort(key=lambda part: (not part.cached, part.used))
        chosen: list[tuple[StoredPart, int]] = []
        for part in idle:
            if missing <= 0:
                break
            offset = -1
            if not part.cached:
                found = self._spill.allocate(part.size_bytes) if self._spill is not None else None
                if found is None:
                    continue
                offset = found
            chosen.append((part, offset))
            missing -= in_pages(part.size_bytes)
        if missing > 0:
            for _, offset in chosen:
                if offset >= 0:
                    assert self._spill is not None
                    self._spill.free(offset)
            return False
        for part, offset in chosen:
            if part.cached:
                self.actions.append(Evict(part.key))
                self._drop(Drop(part.key))
            else:
                part.place, part.offset = PartPlace.SPILLING, offset
                self.actions.append(SpillOut(part.key, part.segment, offset, part.size_bytes))
        return True

    def _refuse_first(self, why: str) -> None:
        """Tell the first that waits for room that there is none."""
        if not self._wants:
            return
        want = self._wants.popleft()
        size_bytes = want.create.size_bytes if want.create else want.part.size_bytes if want.part else 0
        free = self.memory_bytes - self.used_bytes
        spill = (
            f"{self._spill.free_bytes} of {self.spill_bytes} bytes of its spill file"
            if self._spill is not None
            else "it may not spill (spill_bytes, --spill)"
        )
        text = (
            why
            or f"{free} of {self.memory_bytes} bytes of its memory (data_bytes, --memory) are free, {spill}"
        )
        message = f"host {self.host} has no room for {size_bytes} bytes: {text}"
        if want.create is not None:
            self._refuse(want.create.ask, "NoRoom", message)
        elif want.part is not None:
            for pin in want.part.waiting:
                self._refuse(pin.ask, "NoRoom", message)
            want.part.waiting.clear()

    # Ends

    def _bury(self, part: StoredPart) -> None:
        """Give back the room of a part that is gone, once nobody uses or moves it."""
        if part.pins or part.place in (PartPlace.SPILLING, PartPlace.LOADING):
            return
        self._gone.remove(part)
        if part.segment:
            self._retire(part)
        if part.offset >= 0:
            self._free_spill(part)

    def _retire(self, part: StoredPart) -> None:
        self._retired[part.segment] = False
        self.actions.append(Retire(part.segment))
        part.segment = 0

    def _free_spill(self, part: StoredPart) -> None:
        assert self._spill is not None
        self._spill.free(part.offset)
        part.offset = -1

    def _refuse(self, ask: int, kind: str, message: str) -> None:
        self.actions.append(StoreRefused(ask, kind, message))


def _name(key: Key) -> str:
    return f"part {key[1]} of data {key[0]}"
