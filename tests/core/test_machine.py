"""The contract of machines: an event finds its method, and each union of events is covered."""

from __future__ import annotations

from typing import TypeAlias, get_args

import pytest
from msgspec import Struct

from gspc_trio.components.job.machine import JobEvent, JobMachine
from gspc_trio.components.job.scheduler.interface import SchedulerEvent
from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.components.provision.shell.batch import BatchStrategy
from gspc_trio.components.provision.site import BatchSite, SiteAction, SiteEvent
from gspc_trio.components.rif.events import HostAction, HostEvent, RifEvent
from gspc_trio.components.rif.host import RifHost
from gspc_trio.components.rif.machine import Rif
from gspc_trio.components.rif.shell.service import RifService
from gspc_trio.components.rm.events import RmAction, RmEvent
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.shell.service import RmShell, ToRts
from gspc_trio.components.rts.actions import RtsAction
from gspc_trio.components.rts.events import RtsEvent
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.shell.service import RtsService
from gspc_trio.components.worker.events import ComputeAction, WorkerEvent
from gspc_trio.components.worker.machine import Worker
from gspc_trio.components.worker.shell.worker import WorkerShell
from gspc_trio.core.machine import (
    ComposedMachine,
    IllegalEvent,
    MachineBase,
    Performer,
    Turn,
    handles,
    performs,
)
from gspc_trio.iml.coordinator import Coordinator
from gspc_trio.iml.events import LayerAction, LayerEvent
from gspc_trio.iml.messages import LayerRequest
from gspc_trio.iml.requests import LayerRequests
from gspc_trio.iml.shell.coordinator import CoordinatorService
from gspc_trio.iml.shell.store import StoreShell
from gspc_trio.iml.store import Store
from gspc_trio.iml.store_events import StoreAction, StoreEvent
from gspc_trio.protocol.session import Session
from gspc_trio.protocol.signals import SessionEvent


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


def test_each_class_has_code_of_its_own_in_which_python_keeps_where_its_attributes_are() -> None:
    kinds = (MachineBase, Door, LockedDoor, ComposedMachine, DoorWithBell)
    assert len({id(kind.handle.__code__) for kind in kinds}) == len(kinds)


def test_an_unknown_event_is_illegal_and_changes_nothing() -> None:
    door = Door()
    with pytest.raises(IllegalEvent, match="Lock is no event of a door"):
        door.handle(Lock("a"), 1.0)
    assert (door.actions, door.now) == ([], 0.0)


class DoorWithBell(ComposedMachine[Open, str]):
    noun = "a door with a bell"

    def __init__(self) -> None:
        self.state = Turn[str]()
        super().__init__(self.state)

    @handles(Open)
    def _open(self, event: Open) -> None:
        self.state.actions.append(f"ring for {event.name} at {self.state.now}")


def test_parts_share_the_time_and_the_actions() -> None:
    door = DoorWithBell()
    assert door.handle(Open("a"), 2.0) == ["ring for a at 2.0"]
    assert (door.state.actions, door.state.now) == ([], 2.0)


class Porter(Performer[Event]):
    def __init__(self) -> None:
        self.done: list[str] = []

    @performs(Open, Shut)
    def _move(self, action: Open | Shut) -> None:
        self.done.append(f"{type(action).__name__} {action.name}")

    @performs(Lock)
    def _lock(self, action: Lock) -> None:
        self.done.append(f"lock {action.name}")


def test_an_action_goes_to_the_method_that_performs_it() -> None:
    porter = Porter()
    for action in (Open("a"), Lock("b")):
        porter.perform(action)
    assert porter.done == ["Open a", "lock b"]
    assert Porter.action_kinds() == frozenset(get_args(Event))


@pytest.mark.parametrize(
    ("machine", "union"),
    [
        (JobMachine, JobEvent),
        (Scheduler, SchedulerEvent),
        (Store, StoreEvent),
        (Coordinator, LayerEvent),
        (LayerRequests, LayerRequest),
        (Worker, WorkerEvent),
        (Rif, RifEvent),
        (RifHost, HostEvent),
        (Session, SessionEvent),
        (Rts, RtsEvent),
        (ResourceManager, RmEvent),
        (BatchSite, SiteEvent),
    ],
)
def test_handlers_cover_the_union_of_events(
    machine: type[MachineBase[object, object]], union: object
) -> None:
    assert machine.event_kinds() == frozenset(get_args(union))


@pytest.mark.parametrize(
    ("shell", "union"),
    [
        (RifService, HostAction),
        (RtsService, RtsAction),
        (RmShell, RmAction | ToRts),
        (WorkerShell, ComputeAction),
        (CoordinatorService, LayerAction),
        (StoreShell, StoreAction),
        (BatchStrategy, SiteAction),
    ],
)
def test_performers_cover_the_union_of_actions(shell: type[Performer[object]], union: object) -> None:
    assert shell.action_kinds() == frozenset(get_args(union))
