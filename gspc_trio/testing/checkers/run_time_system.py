"""A run-time system: its hosts, what jobs know of them, what is revoked there, and its jobs."""

from __future__ import annotations

from collections.abc import Sequence

from gspc_trio.components.rts.machine import Rts
from gspc_trio.core.ids import JobId
from gspc_trio.testing.checkers.announced import Announced
from gspc_trio.testing.checkers.hosts import Hosts
from gspc_trio.testing.checkers.registry import Registry
from gspc_trio.testing.checkers.revocations import Revocations
from gspc_trio.testing.checkers.rifs import Rifs


class RunTimeSystem:
    """All that is checked of one run-time system.

    Args:
        machine: its machine, before its first event: with what an earlier one has left.
        now: the time.
        named: all jobs that run-time systems that know of one another have ever named.
    """

    def __init__(self, machine: Rts, now: float, named: set[JobId]) -> None:
        self._rifs = Rifs(machine)
        self._hosts = Hosts(machine, self._rifs, now)
        self._announced = Announced(self._rifs)
        self._revocations = Revocations(self._rifs, machine.limits.revoke_timeout_s)
        self._registry = Registry(machine, self._rifs, named)
        self._dues = (self._hosts.due, self._revocations.due, self._registry.due)

    def saw(self, event: object, now: float, actions: Sequence[object]) -> None:
        """It took an event.

        Raises:
            Broken: something does not hold.
        """
        link = getattr(event, "link", None)
        before = self._rifs.at(link) if link is not None else None
        self._hosts.before(event, actions)
        self._rifs.take(event, actions)
        self._hosts.saw(event, now, actions)
        self._announced.saw(actions)
        self._revocations.saw(event, now, actions, before)
        self._registry.saw(event, now, actions)

    def is_at_work(self, now: float) -> None:
        """Its process does something, whatever it is.

        Raises:
            Broken: it has let pass what was due.
        """
        for due in self._dues:
            if now > due.next_s:
                due.look(now)
