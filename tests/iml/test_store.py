"""The machine of a memory server: action by action, and at random against the bytes it should hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gspc_trio.core.machine import IllegalEvent, Tick
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
    StoreRefused,
    Unpin,
)

PAGE = 4096
A, B, C = ("a", 0), ("b", 0), ("c", 0)


def feed(store: Store, *events: Any) -> list[Any]:
    actions = []
    for event in events:
        actions += store.handle(event, 0.0)
        store.check()
    return actions


def test_a_part_is_made_read_and_dropped() -> None:
    store = Store("h", 4 * PAGE)
    assert feed(store, Create(1, A, 5000)) == [MakeSegment(1, 5000, 2 * PAGE), Granted(1, A, 5000, 1)]
    assert feed(store, Pin(2, A)) == [Granted(2, A, 5000, 1)]
    assert feed(store, Drop(A)) == []
    assert feed(store, Pin(3, A)) == [StoreRefused(3, "UnknownData", "host h does not hold part 0 of data a")]
    assert feed(store, Unpin(A)) == [Retire(1)]
    assert store.used_bytes == 2 * PAGE
    assert feed(store, SegmentHeld(1), SegmentFree(1)) == []
    assert store.used_bytes == 0


def test_a_read_of_a_part_made_again_is_not_taken_for_the_use_of_the_one_before() -> None:
    """The part that was dropped was given back while it was mapped, and the new one was read for ever."""
    store = Store("h", 4 * PAGE)
    feed(store, Create(1, A, PAGE), Pin(2, A, PinUse.MAP), Drop(A), Create(3, A, PAGE), Pin(4, A))
    assert feed(store, Unpin(A)) == []
    assert feed(store, Pin(5, A, PinUse.CHANGE)) == [Granted(5, A, PAGE, 2)]
    assert feed(store, Unpin(A, PinUse.CHANGE)) == []
    assert feed(store, Unpin(A, PinUse.MAP)) == [Retire(1)]


def test_without_spilling_a_full_memory_refuses_and_changes_nothing() -> None:
    store = Store("h", 2 * PAGE)
    feed(store, Create(1, A, PAGE))
    [refused] = feed(store, Create(2, B, 2 * PAGE))
    assert refused.kind == "NoRoom"
    assert refused.message == (
        "host h has no room for 8192 bytes: 4096 of 8192 bytes of its memory "
        "(data_bytes, --memory) are free, it may not spill (spill_bytes, --spill)"
    )
    assert store.size_of(A) == PAGE
    assert store.size_of(B) is None


def test_what_is_not_used_goes_to_disk_and_comes_back_to_be_mapped() -> None:
    store = Store("h", 2 * PAGE, 8 * PAGE)
    feed(store, Create(1, A, PAGE), Create(2, B, PAGE), Pin(3, A), Unpin(A))
    assert feed(store, Create(4, C, PAGE)) == [SpillOut(B, 2, 0, PAGE)]
    assert feed(store, Moved(B)) == [Retire(2)]
    assert feed(store, SegmentFree(2)) == [MakeSegment(3, PAGE, 0), Granted(4, C, PAGE, 3)]
    assert feed(store, Pin(5, B)) == [Granted(5, B, PAGE, 0, 0)]
    assert feed(store, Unpin(B)) == []
    assert feed(store, Pin(6, B, PinUse.MAP)) == [SpillOut(A, 1, PAGE, PAGE)]
    assert feed(store, Moved(A)) == [Retire(1)]
    assert feed(store, SegmentFree(1)) == [MakeSegment(4, PAGE, 0, True), LoadIn(B, 4, 0, PAGE)]
    assert feed(store, Moved(B)) == [Granted(6, B, PAGE, 4)]


def test_a_part_that_is_mapped_or_written_does_not_move() -> None:
    store = Store("h", 2 * PAGE, 8 * PAGE)
    feed(store, Create(1, A, PAGE, writing=True), Create(2, B, PAGE), Pin(3, B, PinUse.MAP))
    [refused] = feed(store, Create(4, C, PAGE))
    assert isinstance(refused, StoreRefused)
    assert feed(store, Seal(A), Create(5, C, PAGE)) == [SpillOut(A, 1, 0, PAGE)]


def test_a_part_in_use_again_while_it_is_spilled_stays() -> None:
    store = Store("h", PAGE, 8 * PAGE)
    feed(store, Create(1, A, PAGE), Create(2, B, PAGE))
    assert feed(store, Pin(3, A, PinUse.MAP)) == [
        Granted(3, A, PAGE, 1),
        StoreRefused(
            2,
            "NoRoom",
            f"host h has no room for {PAGE} bytes: 0 of {PAGE} bytes of its memory "
            f"(data_bytes, --memory) are free, {7 * PAGE} of {8 * PAGE} bytes of its spill file",
        ),
    ]
    assert feed(store, Moved(A)) == []
    assert store.statistics().spilled_bytes == 0


def test_a_disk_that_is_full_is_told_to_whoever_waits() -> None:
    store = Store("h", PAGE, 8 * PAGE)
    feed(store, Create(1, A, PAGE), Create(2, B, PAGE))
    [refused] = feed(store, Moved(A, "No space left on device"))
    assert refused == StoreRefused(
        2, "NoRoom", f"host h has no room for {PAGE} bytes: it cannot be made: No space left on device"
    )
    assert feed(store, Pin(3, A, PinUse.MAP)) == [Granted(3, A, PAGE, 1)]


def test_cached_copies_go_first_and_are_told() -> None:
    store = Store("h", 2 * PAGE, 8 * PAGE)
    feed(store, Create(1, A, PAGE), Create(2, B, PAGE, cached=True), Pin(3, B), Unpin(B))
    assert feed(store, Create(4, C, PAGE)) == [Evict(B), Retire(2)]
    assert feed(store, SegmentFree(2)) == [MakeSegment(3, PAGE, 0), Granted(4, C, PAGE, 3)]


def test_a_change_waits_for_readers_and_readers_for_it() -> None:
    store = Store("h", PAGE)
    feed(store, Create(1, A, 10), Pin(2, A))
    assert feed(store, Pin(3, A, PinUse.CHANGE), Pin(4, A)) == []
    assert feed(store, Unpin(A)) == [Granted(3, A, 10, 1)]
    assert feed(store, Unpin(A, PinUse.CHANGE)) == [Granted(4, A, 10, 1)]


def test_what_is_mapped_can_be_changed() -> None:
    store = Store("h", PAGE)
    feed(store, Create(1, A, 10))
    granted = feed(store, Pin(2, A, PinUse.MAP), Pin(3, A, PinUse.CHANGE), Pin(4, A, PinUse.MAP))
    assert [action.ask for action in granted] == [2, 3, 4]


def test_who_waits_for_what_is_dropped_is_told() -> None:
    store = Store("h", PAGE, 8 * PAGE)
    feed(store, Create(1, A, PAGE, writing=True), Pin(2, A))
    assert feed(store, Drop(A)) == [
        StoreRefused(2, "UnknownData", "part 0 of data a was dropped meanwhile"),
        Retire(1),
    ]


@pytest.mark.parametrize("event", [Unpin(A), Moved(A), SegmentFree(1), SegmentHeld(1), object()])
def test_what_cannot_be_is_illegal(event: Any) -> None:
    store = Store("h", PAGE)
    with pytest.raises(IllegalEvent):
        store.handle(event, 0.0)
    assert store.handle(Tick(), 0.0) == []
    assert store.deadline() is None


class StoreAgainstBytes(RuleBasedStateMachine):
    """Parts hold the bytes that were written, wherever they move; segments are never shared."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store("h", 4 * PAGE, 5 * PAGE)
        self.segments: dict[int, bytes] = {}
        self.file: dict[int, bytes] = {}
        self.wanted: dict[Key, bytes] = {}
        self.pins: list[Granted] = []
        self.uses: dict[int, tuple[Key, PinUse]] = {}
        self.creating: dict[int, Key] = {}
        self.moves: list[SpillOut | LoadIn] = []
        self.retired: list[int] = []
        self.asks = 0

    def feed(self, event: Any) -> None:
        for action in self.store.handle(event, 0.0):
            self.perform(action)
        self.store.check()

    def perform(self, action: Any) -> None:
        if isinstance(action, MakeSegment):
            assert action.segment not in self.segments
            self.segments[action.segment] = b""
        elif isinstance(action, SpillOut | LoadIn):
            self.moves.append(action)
        elif isinstance(action, Retire):
            assert all(pin.segment != action.segment for pin in self.pins), "retired, but pinned"
            self.retired.append(action.segment)
        elif isinstance(action, Evict):
            del self.wanted[action.key]
        elif isinstance(action, Granted):
            self.granted(action)
        elif isinstance(action, StoreRefused):
            self.creating.pop(action.ask, None)
            self.uses.pop(action.ask, None)
        else:
            raise AssertionError(action)

    def granted(self, action: Granted) -> None:
        key = self.creating.pop(action.ask, None)
        if key is not None:
            self.segments[action.segment] = self.wanted[key] = f"{key}".encode()
            return
        assert self.bytes_of(action) == self.wanted[action.key]
        self.pins.append(action)

    def bytes_of(self, pin: Granted) -> bytes:
        return self.segments[pin.segment] if pin.segment else self.file[pin.offset]

    @rule(pages=st.integers(1, 5), writing=st.booleans(), cached=st.booleans())
    def create(self, pages: int, writing: bool, cached: bool) -> None:
        self.asks += 1
        key = (f"d{self.asks}", 0)
        self.creating[self.asks] = key
        self.feed(Create(self.asks, key, pages * PAGE - 1, writing, cached))

    @rule(use=st.sampled_from(PinUse), data=st.data())
    def pin(self, use: PinUse, data: st.DataObject) -> None:
        if self.wanted:
            key = data.draw(st.sampled_from(sorted(self.wanted)))
            self.asks += 1
            self.uses[self.asks] = (key, use)
            self.feed(Pin(self.asks, key, use))

    @rule(data=st.data())
    def seal_or_drop(self, data: st.DataObject) -> None:
        if self.wanted:
            key = data.draw(st.sampled_from(sorted(self.wanted)))
            if data.draw(st.booleans()):
                self.feed(Seal(key))
            else:
                del self.wanted[key]
                self.feed(Drop(key))

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        pin = self.pins.pop(data.draw(st.integers(0, len(self.pins) - 1)))
        key, use = self.uses.pop(pin.ask)
        if use is PinUse.CHANGE and key in self.wanted:
            self.wanted[key] += b"+"
            if pin.segment:
                self.segments[pin.segment] = self.wanted[key]
            else:
                self.file[pin.offset] = self.wanted[key]
        self.feed(Unpin(key, use))

    @precondition(lambda self: self.moves)
    @rule(data=st.data(), problem=st.sampled_from(["", "", "disk full"]))
    def move(self, data: st.DataObject, problem: str) -> None:
        move = self.moves.pop(data.draw(st.integers(0, len(self.moves) - 1)))
        if not problem and isinstance(move, SpillOut):
            self.file[move.offset] = self.segments[move.segment]
        elif not problem:
            self.segments[move.segment] = self.file[move.offset]
        self.feed(Moved(move.key, problem))

    @precondition(lambda self: self.retired)
    @rule(data=st.data(), held=st.booleans())
    def free_segment(self, data: st.DataObject, held: bool) -> None:
        segment = self.retired[data.draw(st.integers(0, len(self.retired) - 1))]
        if held:
            self.feed(SegmentHeld(segment))
        else:
            self.retired.remove(segment)
            del self.segments[segment]
            self.feed(SegmentFree(segment))

    @invariant()
    def pinned_bytes_stay(self) -> None:
        for pin in self.pins:
            if pin.key in self.wanted:
                assert self.bytes_of(pin) == self.wanted[pin.key]

    def drop_all(self) -> None:
        while self.wanted:  # a drop makes room, for which something cached may have to go
            key = next(iter(self.wanted))
            del self.wanted[key]
            self.feed(Drop(key))

    def teardown(self) -> None:
        """When all are unpinned, moved and dropped, nothing is left."""
        self.drop_all()
        while self.pins or self.moves or self.retired or self.creating:
            if self.pins:
                pin = self.pins.pop()
                self.feed(Unpin(*self.uses.pop(pin.ask)))
            elif self.moves:
                self.feed(Moved(self.moves.pop().key))
            elif self.retired:
                self.feed(SegmentFree(self.retired.pop()))
            else:
                raise AssertionError("somebody waits for ever")
            self.drop_all()
        assert self.store.used_bytes == 0
        assert self.store.statistics().parts == 0


TestStoreAgainstBytes = StoreAgainstBytes.TestCase
TestStoreAgainstBytes.settings = settings(max_examples=50, stateful_step_count=40)
