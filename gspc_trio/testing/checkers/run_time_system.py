"""A run-time system: its hosts, what jobs know of them, what is revoked there, and its jobs."""

from __future__ import annotations

from collections.abc import Sequence

from gspc_trio.components.rif.messages import RemoveResources
from gspc_trio.components.rts.actions import AcceptJob, AskRif, RtsAction, TellJobs
from gspc_trio.components.rts.events import RtsEvent
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import RifGone, RifUp
from gspc_trio.components.rts.state import RifState
from gspc_trio.core.ids import JobId, ResourceId, RifId
from gspc_trio.records.facts import JobChanged
from gspc_trio.testing.checkers.avoided import Avoided
from gspc_trio.testing.checkers.base import Broken, Family
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
        family: of resources.
    """

    def __init__(self, machine: Rts, now: float, named: set[JobId], family: Family) -> None:
        self._rifs = Rifs(machine)
        self._hosts = Hosts(machine, self._rifs, now)
        self._announced = Announced(self._rifs)
        self._avoided = Avoided(self._rifs, family)
        self._revocations = Revocations(self._rifs, machine.limits.revoke_timeout_s)
        self._registry = Registry(machine, self._rifs, named)
        self._dues = (self._hosts.due, self._revocations.due, self._registry.due)

    def saw(self, event: RtsEvent, now: float, actions: Sequence[RtsAction]) -> None:
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
        self._avoided.saw(event, actions)
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


class Announced:
    """What the jobs of one run-time system are told of its RIFs.

    Args:
        rifs: what is known of these.
    """

    def __init__(self, rifs: Rifs) -> None:
        self._rifs = rifs
        self._told: dict[JobId, dict[RifId, set[ResourceId]]] = {}

    def saw(self, actions: Sequence[RtsAction]) -> None:
        """The run-time system took an event, and its RIFs are what they are now.

        Raises:
            Broken: a job is told something else, or a RIF is to remove what the resource manager has.
        """
        for action in actions:
            if type(action) is AcceptJob:
                self._told[action.job] = {}
            elif type(action) is JobChanged and action.state != "running":
                self._told.pop(action.job, None)
            elif type(action) is TellJobs:
                for job in self._told.keys() & set(action.jobs):  # others are not there yet
                    if isinstance(action.message, RifUp):
                        names = {resource.resource_id for resource in action.message.resources}
                        self._told[job][action.message.rif_id] = names
                    elif isinstance(action.message, RifGone):
                        self._told[job].pop(action.message.rif_id, None)
            elif type(action) is AskRif and isinstance(action.message, RemoveResources):
                self._check_removed(action.link, action.message.resource_ids)
        for job, told in self._told.items():
            self._compare(job, told)

    def _check_removed(self, link: int, names: tuple[ResourceId, ...]) -> None:
        host = self._rifs.at(link)
        kept = host.there.intersection(names) if host is not None else set()
        if kept:
            raise Broken(f"{min(kept)} is to be cleared away, and the resource manager has it", min(kept))

    def _compare(self, job: JobId, told: dict[RifId, set[ResourceId]]) -> None:
        for host in self._rifs:
            names = told.get(host.rif_id, set())
            if host.is_up and names != host.there:
                other = min(names ^ host.there)
                raise Broken(f"{job} is told that {host.rif_id} has {names}, not {host.there}", other)
        for rif_id, names in told.items():
            there = self._rifs.get(rif_id)
            if names and (there is None or not (there.is_up or there.state == RifState.AWAY)):
                raise Broken(f"{job} is not told that {rif_id} is gone", rif_id)
