"""What is done about anomalies: which hosts are not used, and for how long; pure (ASP-9)."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.monitor.detector import TASKS, Finding
from gspc_trio.core.machine import MachineBase, Tick, handles
from gspc_trio.core.task import DataUse

EVACUATED = frozenset({"pagefail", "ioerr"})
"""Classes of anomalies for which a host is evacuated; of others, when a finding says that it is urgent."""


AVOIDED_FOR = {"copy": DataUse.FILES, "linklog": DataUse.REMOTE}
"""Classes of anomalies that slow only such tasks down; a host with others is avoided for all."""


class ReactionLimits(Struct, frozen=True):
    """Times and shares.

    Attributes:
        held_s: so long a host is not used at least; it doubles each time, up to ``held_s_max``.
        forget_s: a host in use for so long begins with ``held_s`` again.
        hosts_share: part of the hosts that may be held at one time; one may be, but never the last.
    """

    held_s: float = 60.0
    held_s_max: float = 3600.0
    forget_s: float = 3600.0
    hosts_share: float = 0.3


class HostUp(Struct, frozen=True):
    """A host is measured from now on."""

    host: str


class HostGone(Struct, frozen=True):
    """A host is not there any more."""

    host: str


class HoldHost(Struct, frozen=True):
    """Do not use a host: it gets nothing new, or no new tasks of some kinds. Said again, it adds to that.

    Attributes:
        host: which one.
        kinds: the classes of its anomalies.
        held_s: for so long at least.
        evacuate: it may fail: what is there is to be brought away.
        uses: it gets no new tasks that use data so; empty: none at all.
    """

    host: str
    kinds: tuple[str, ...]
    held_s: float
    evacuate: bool = False
    uses: tuple[DataUse, ...] = ()


class UseHost(Struct, frozen=True):
    """Use a host again."""

    host: str


ReactionEvent: TypeAlias = HostUp | HostGone | Finding | Tick
ReactionAction: TypeAlias = HoldHost | UseHost


class _Host(Struct, eq=False):
    """A host: its anomalies, when it is looked at again while it is held, and what came before.

    Attributes:
        kinds: its anomalies, each with whether it is urgent.
        is_evacuated: it is held, and what is there is brought away.
        uses: it is held for tasks that use data so; empty: for all.
        is_there: it is measured; one that is not stays held for as long as it was to be.
    """

    kinds: dict[str, bool]
    is_there: bool = True
    until_s: float | None = None
    is_evacuated: bool = False
    uses: tuple[DataUse, ...] = ()
    holds: int = 0
    used_s: float = 0.0

    @property
    def may_fail(self) -> bool:
        """Whether what is there is to be brought away."""
        return any(is_urgent or kind in EVACUATED for kind, is_urgent in self.kinds.items())

    @property
    def wrong_for(self) -> tuple[DataUse, ...]:
        """For which tasks it is the wrong host; empty: for all."""
        found = {AVOIDED_FOR.get(kind) for kind in self.kinds}
        return () if None in found or self.may_fail else tuple(sorted(one for one in found if one))

    @property
    def is_worse(self) -> bool:
        """Whether it is held, and is the wrong host for more than it is held for."""
        if self.may_fail and not self.is_evacuated:
            return True
        wrong_for = self.wrong_for
        return bool(self.uses) and not (wrong_for and set(wrong_for) <= set(self.uses))


def holds_max(hosts: int, limits: ReactionLimits) -> int:
    """Return how many hosts of so many may be held at one time."""
    return max(0, min(hosts - 1, max(1, int(hosts * limits.hosts_share))))


class Reaction(MachineBase[ReactionEvent, ReactionAction]):
    """Holds hosts with anomalies back, and has them used again when they have none.

    Args:
        limits: times and shares.
    """

    noun = "the reaction to anomalies"

    def __init__(self, limits: ReactionLimits | None = None) -> None:
        super().__init__()
        self.limits: ReactionLimits = limits or ReactionLimits()
        self._hosts: dict[str, _Host] = {}

    @property
    def held(self) -> list[str]:
        """Hosts that are not used."""
        return [name for name, host in self._hosts.items() if host.is_there and host.until_s is not None]

    @property
    def _allowed(self) -> int:
        return holds_max(sum(host.is_there for host in self._hosts.values()), self.limits)

    @handles(HostUp)
    def _up(self, event: HostUp) -> None:
        host = self._hosts.setdefault(event.host, _Host({}))
        host.is_there = True
        host.kinds.clear()
        self._use_some()

    @handles(HostGone)
    def _gone(self, event: HostGone) -> None:
        host = self._hosts.get(event.host)
        if host is not None:
            host.is_there = False
            host.kinds.clear()
            if host.until_s is None:
                del self._hosts[event.host]
            self._use_some()

    def _use_some(self) -> None:
        """Use the latest again if fewer hosts are there, or one is back that is held."""
        for name in self.held[self._allowed :]:
            self._use(name, self._hosts[name])

    @handles(Finding)
    def _found(self, event: Finding) -> None:
        host = self._hosts.get(event.host)
        if host is None or not host.is_there or event.subject == TASKS:
            return
        if not event.is_on:
            host.kinds.pop(event.kind, None)
        else:
            host.kinds[event.kind] = event.is_urgent
            if host.until_s is not None and host.until_s > self.now and host.is_worse:
                self._hold_for(event.host, host, host.until_s - self.now)
            self._hold_some()

    @handles(Tick)
    def _tick(self, _: Tick) -> None:
        for name, host in list(self._hosts.items()):
            if host.until_s is not None and host.until_s <= self.now:
                if host.kinds:
                    self._hold(name, host)
                else:
                    self._use(name, host)
        self._hold_some()

    def _hold_some(self) -> None:
        """Hold hosts that have anomalies back, as many as may be held; first those that may fail."""
        allowed = self._allowed
        free = allowed - len(self.held)
        waiting = [(name, host) for name, host in self._hosts.items() if host.kinds and host.until_s is None]
        for name, host in sorted(waiting, key=lambda one: not one[1].may_fail):
            slow = [other for other in self.held if not self._hosts[other].may_fail]
            if free <= 0 and allowed and host.may_fail and slow:
                self._use(slow[-1], self._hosts[slow[-1]])
                free += 1
            if free > 0:
                self._hold(name, host)
                free -= 1

    def _hold(self, name: str, host: _Host) -> None:
        limits = self.limits
        if host.until_s is None and self.now - host.used_s >= limits.forget_s:
            host.holds = 0
        held_s = min(limits.held_s_max, limits.held_s * 2**host.holds)
        host.holds = min(host.holds + 1, 32)
        if host.until_s is None:  # else it becomes no better
            host.uses = host.wrong_for
        host.until_s = self.now + held_s
        self._hold_for(name, host, held_s)

    def _hold_for(self, name: str, host: _Host, held_s: float) -> None:
        """Hold a host, for all that it is the wrong one for."""
        wrong_for = host.wrong_for
        host.uses = tuple(sorted({*host.uses, *wrong_for})) if host.uses and wrong_for else ()
        host.is_evacuated = host.may_fail
        self.actions.append(HoldHost(name, tuple(host.kinds), held_s, host.is_evacuated, host.uses))

    def _use(self, name: str, host: _Host) -> None:
        host.until_s, host.used_s, host.is_evacuated = None, self.now, False
        self.actions.append(UseHost(name))
        if not host.is_there:
            del self._hosts[name]

    def deadline(self) -> float | None:
        """Return when a host is to be looked at again."""
        times = [host.until_s for host in self._hosts.values() if host.until_s is not None]
        return min(times, default=None)

    def check(self) -> None:
        """Assert that no more hosts are held than may be, and never all."""
        assert len(self.held) <= self._allowed, self.held
        for name, host in self._hosts.items():
            assert host.until_s is None or host.holds, name
            assert host.is_there or (host.until_s is not None and not host.kinds), name
