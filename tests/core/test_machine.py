"""The contract of machines: an event finds its method, and each union of events is covered."""

from __future__ import annotations

from typing import TypeAlias, get_args

import pytest
from msgspec import Struct

from gspc_trio.core.machine import (
    IllegalEvent,
    MachineBase,
    handles,
)
from gspc_trio.iml.coordinator import Coordinator
from gspc_trio.iml.events import LayerEvent
from gspc_trio.iml.messages import LayerRequest
from gspc_trio.iml.requests import LayerRequests
from gspc_trio.iml.store import Store
from gspc_trio.iml.store_events import StoreEvent


class Open(Struct, frozen=True):
    name: str


class Shut(Struct, frozen=True):
    name: str


class Lock(Struct, frozen=True):
    name: str


Event: TypeAlias = Open | Shut | Lock


class Door(MachineBase[Event, str]):
    noun = "a door"

    @handles(Open, Shut)
    def _move(self, event: Open | Shut) -> None:
        self.actions.append(f"{type(event).__name__} {event.name} at {self.now}")


class LockedDoor(Door):
    @handles(Lock)
    def _lock(self, event: Lock) -> None:
        self.actions.append(f"lock {event.name}")

    def settle(self) -> None:
        self.actions.append("settled")


def test_an_event_goes_to_the_method_that_handles_it() -> None:
    door = Door()
    assert door.handle(Open("a"), 2.0) == ["Open a at 2.0"]
    assert door.handle(Shut("b"), 3.0) == ["Shut b at 3.0"]
    assert door.actions == []


def test_a_subclass_adds_events_and_settles_after_each() -> None:
    assert LockedDoor.event_kinds() == {Open, Shut, Lock}
    assert Door.event_kinds() == {Open, Shut}
    door = LockedDoor()
    assert door.handle(Lock("a"), 0.0) == ["lock a", "settled"]
    assert door.handle(Open("a"), 0.0) == ["Open a at 0.0", "settled"]


def test_an_unknown_event_is_illegal_and_changes_nothing() -> None:
    door = Door()
    with pytest.raises(IllegalEvent, match="Lock is no event of a door"):
        door.handle(Lock("a"), 1.0)
    assert (door.actions, door.now) == ([], 0.0)


@pytest.mark.parametrize(
    ("machine", "union"),
    [
        (Store, StoreEvent),
        (Coordinator, LayerEvent),
        (LayerRequests, LayerRequest),
    ],
)
def test_handlers_cover_the_union_of_events(
    machine: type[MachineBase[object, object]], union: object
) -> None:
    assert machine.event_kinds() == frozenset(get_args(union))
