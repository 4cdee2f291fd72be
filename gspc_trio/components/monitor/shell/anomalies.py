"""Watches for anomalies of hosts: what is found is stored, and with ``act`` something is done about it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

import trio

from gspc_trio.components.monitor.detector import HOST, Detector, Finding
from gspc_trio.components.monitor.messages import NodeFrame
from gspc_trio.components.monitor.reaction import (
    HoldHost,
    HostGone,
    HostUp,
    Reaction,
    ReactionEvent,
    ReactionLimits,
)
from gspc_trio.components.monitor.shell.store import StoredEvent
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import DataUse
from gspc_trio.nursery.scopes.observe import observed
from gspc_trio.records.facts import AnomalyChanged, Record

log: logging.Logger = logging.getLogger(__name__)

GROUP = "gspc_trio.detectors"
"""Entry points of further detectors: each is called and returns a :class:`FrameDetector`."""


class FrameDetector(Protocol):
    """What finds anomalies in frames."""

    def joined(self, host: str, cpus: int) -> None:
        """A host is measured from now on; its RIF may use so many CPUs."""
        ...

    def take(self, host: str, frame: NodeFrame) -> Sequence[Finding]:
        """Take in a frame of a host; return which anomalies begin or end with it."""
        ...

    def gone(self, host: str) -> None:
        """A host is not there any more."""
        ...


class HostUse(Protocol):
    """What decides whether a host is used."""

    def avoid(self, host: str, reason: str, *, evacuate: bool, uses: tuple[DataUse, ...] = ()) -> None:
        """Give nothing new to a host, or nothing that uses data so; one that may fail is left."""
        ...

    def use(self, host: str) -> None:
        """Use it again."""
        ...


ON, OFF, HELD, USED = "anomaly_on", "anomaly_off", "host_held", "host_used"
"""Kinds of events: an anomaly begins or ends, and what is done."""

BY_TASKS = " by tasks"
"""What follows the class of an anomaly if tasks cause it."""


class AnomalyWatch:
    """Watches the hosts of a run-time system.

    Args:
        acts: something is done about what is found.
        add_event: keeps what has happened.
        detectors: of which each sees all frames; by default this project's and those of packages.
        limits: of what is done.
        record: tells those who watch.
    """

    def __init__(
        self,
        acts: bool,
        add_event: Callable[[StoredEvent], None],
        detectors: Sequence[FrameDetector] | None = None,
        limits: ReactionLimits | None = None,
        record: Callable[[Record], None] = lambda _: None,
    ) -> None:
        self._record = record
        self._on: dict[tuple[str, str, bool], None] = {}
        self.hosts: HostUse | None = None
        self._acts = acts
        self._add_event = add_event
        self._detectors = (Detector(), *plug_ins()) if detectors is None else tuple(detectors)
        self._reaction = observed(Reaction(limits))
        self._changed = trio.Event()

    def joined(self, host: str, cpus: int) -> None:
        """A host is measured from now on."""
        for detector in self._detectors:
            detector.joined(host, cpus)
        self._react(HostUp(host))

    def take(self, host: str, frame: NodeFrame) -> None:
        """Take in a frame of a host."""
        for detector in self._detectors:
            for found in detector.take(host, frame):
                told = described(found)
                state = "begins" if found.is_on else "is over"
                log.warning("%s: an anomaly %s: %s", host, state, told)
                self._add_event(StoredEvent(found.at_s, ON if found.is_on else OFF, told, host))
                self._tell(found.host, found.kind, found.is_on, found.subject != HOST, found.evidence)
                self._react(found)

    def recall(self, host: str, frames: Iterable[NodeFrame]) -> None:
        """Take in what a host that has just joined had told before, in order: what is on still goes on."""
        on: dict[tuple[str, str], Finding] = {}
        for frame in frames:
            for detector in self._detectors:
                for found in detector.take(host, frame):
                    if found.is_on:
                        on[found.kind, found.subject] = found
                    else:
                        on.pop((found.kind, found.subject), None)
        for found in on.values():
            log.warning("%s: an anomaly goes on: %s", host, described(found))
            self._add_event(StoredEvent(found.at_s, ON, described(found), host))
            self._tell(found.host, found.kind, True, found.subject != HOST, found.evidence)
            self._react(found)

    def _tell(self, host: str, kind: str, is_on: bool, by_tasks: bool, detail: str = "") -> None:
        """Tell those who watch that an anomaly is on, or over."""
        key = host, kind, by_tasks
        if is_on:
            self._on[key] = None
        else:
            self._on.pop(key, None)
        state = "on" if is_on else "over"
        self._record(AnomalyChanged(trio.current_time(), host, kind, state, by_tasks, detail * is_on))

    def gone(self, host: str) -> None:
        """A host is not there any more."""
        for detector in self._detectors:
            detector.gone(host)
        for _, kind, by_tasks in [key for key in self._on if key[0] == host]:
            self._tell(host, kind, False, by_tasks)
        self._react(HostGone(host))

    def _react(self, event: ReactionEvent) -> None:
        """Do what the machine says."""
        if not self._acts:
            return
        for action in self._reaction.handle(event, trio.current_time()):
            if isinstance(action, HoldHost):
                kinds = ", ".join(action.kinds)
                whom = f"no new tasks with {' or '.join(action.uses)}" if action.uses else "nothing new"
                told = f"{kinds}: {whom} for {action.held_s:.0f} s at least"
                if action.evacuate:
                    told += ", and tasks and data leave it"
                self._add_event(StoredEvent(time.time(), HELD, told, action.host))
                if self.hosts is not None:
                    self.hosts.avoid(
                        action.host, f"anomaly: {kinds}", evacuate=action.evacuate, uses=action.uses
                    )
            else:
                self._add_event(StoredEvent(time.time(), USED, "it may get new tasks", action.host))
                if self.hosts is not None:
                    self.hosts.use(action.host)
        self._changed.set()

    async def run(self) -> None:
        """Look at hosts again that are held, until cancelled."""
        while True:
            self._changed = trio.Event()
            due_s = self._reaction.deadline()
            with trio.move_on_at(math.inf if due_s is None else due_s) as scope:
                await self._changed.wait()
            if scope.cancelled_caught:
                self._react(Tick())


def described(found: Finding) -> str:
    """Return an anomaly as a line for people: its class, and whether tasks cause it."""
    whose = "" if found.subject == HOST else BY_TASKS
    return f"{found.kind}{whose}" + (f": {found.evidence}" if found.is_on else "")


def plug_ins(found: Sequence[EntryPoint] | None = None) -> list[FrameDetector]:
    """Return the detectors that packages offer; one that cannot be loaded is left out, and a line says so.

    Args:
        found: the entry points; None: those of what is installed.
    """
    detectors: list[FrameDetector] = []
    for one in entry_points(group=GROUP) if found is None else found:
        try:
            detectors.append(one.load()())
        except Exception as error:
            log.warning("the detector %s cannot be used: %s", one.name, error)
    return detectors
