"""Hosts with anomalies: held for so long, never too many, never the last; jobs bring away what is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from attrs import define, field

from gspc_trio.components.job.machine import JobAction, JobEvent
from gspc_trio.components.job.scheduler.interface import (
    HostEvacuated,
    HostRestricted,
    ResourcesLost,
    ResourcesUp,
)
from gspc_trio.components.monitor.detector import Finding
from gspc_trio.components.monitor.reaction import (
    HoldHost,
    HostGone,
    HostUp,
    ReactionAction,
    ReactionEvent,
    ReactionLimits,
)
from gspc_trio.components.rts import events
from gspc_trio.components.rts.actions import AcceptJob, RtsAction, TellJobs
from gspc_trio.components.rts.events import RtsEvent
from gspc_trio.components.rts.messages import Evacuate, Restrict, RifGone
from gspc_trio.components.worker.messages import Submit
from gspc_trio.core.ids import JobId, ResourceId, RifId, host_name
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import MEMORY_CLASS
from gspc_trio.core.staging import PLAN_MARK
from gspc_trio.core.task import DataUse
from gspc_trio.protocol.values import is_reference
from gspc_trio.records.facts import JobChanged, RifChanged
from gspc_trio.testing.checkers.base import Broken, Family
from gspc_trio.testing.checkers.due import Due
from gspc_trio.testing.checkers.rifs import Host, Rifs

EARLY_S = 1e-6
"""A time is rounded by less than that."""

MAY_FAIL = frozenset({"ioerr", "pagefail"})
"""Classes of anomalies by which a host may fail."""

SLOWS = {"copy": "files", "linklog": "remote data"}
"""Classes of anomalies that slow some tasks down only, and which."""


@define(eq=False)
class _Known:
    """A host: its anomalies, whether each is urgent; until when it is held; how often it was."""

    kinds: dict[str, bool] = field(factory=dict)
    is_there: bool = False
    until_s: float | None = None
    evacuated: bool = False
    uses: frozenset[str] | None = None
    holds: int = 0
    used_s: float = -inf

    @property
    def slowed(self) -> frozenset[str]:
        """For which tasks it is to be held; empty: for all."""
        found = {SLOWS.get(kind, "") for kind in self.kinds}
        return frozenset() if "" in found or self.may_fail else frozenset(found)

    @property
    def may_fail(self) -> bool:
        return any(urgent or kind in MAY_FAIL for kind, urgent in self.kinds.items())


class Held:
    """Which hosts the reaction to anomalies holds.

    Args:
        limits: for how long, and how many.
    """

    def __init__(self, limits: ReactionLimits) -> None:
        self._limits = limits
        self._hosts: dict[str, _Known] = {}
        self.due: Due = Due()

    def saw(self, event: ReactionEvent, now: float, actions: Sequence[ReactionAction]) -> None:
        """The reaction took an event.

        Raises:
            Broken: it holds too many hosts, one without reason or for another time, or none of those it must.
        """
        host = getattr(event, "host", "")
        known = self._hosts.get(host, _Known())
        if isinstance(event, HostUp):
            self._hosts[host] = known
        if type(event) is HostUp or type(event) is HostGone:
            known.is_there = type(event) is HostUp
            known.kinds.clear()
            if not known.is_there and known.until_s is None:
                self._hosts.pop(host, None)
        elif type(event) is Finding and known.is_there and event.subject == "host":
            if event.is_on:
                known.kinds[event.kind] = event.is_urgent
            else:
                known.kinds.pop(event.kind, None)
        is_pressed = any(type(action) is HoldHost and action.evacuate for action in actions)
        for action in actions:
            if isinstance(action, HoldHost):
                self._holds(action, now)
            else:
                self._uses(action.host, now, isinstance(event, HostUp | HostGone), is_pressed)
        self._check(isinstance(event, Tick) or (isinstance(event, Finding) and event.is_on))
        self.due.set(self._things())

    def _holds(self, action: HoldHost, now: float) -> None:
        host = self._hosts.get(action.host, _Known())
        if not host.is_there or set(action.kinds) != set(host.kinds) or not host.kinds:
            raise Broken(f"{action.host} has {list(host.kinds)}, and is held for {action.kinds}", action.host)
        if action.evacuate != host.may_fail:
            raise Broken(f"{action.host} has {list(host.kinds)}: {action.evacuate=}", action.host)
        is_more = host.until_s is not None and now < host.until_s - EARLY_S
        before, uses = host.uses, host.slowed
        if before is not None:  # it becomes no better while it is held
            uses = before | uses if before and uses else frozenset()
        if set(action.uses) != uses:
            raise Broken(f"{action.host} has {list(host.kinds)}: it is held for {action.uses}", action.host)
        host.uses = uses
        if is_more:
            if before == uses and (host.evacuated or not action.evacuate):
                raise Broken(f"{action.host} is held, and held once more", action.host)
        else:
            if host.until_s is None and now - host.used_s >= self._limits.forget_s:
                host.holds = 0
            wanted_s = min(self._limits.held_s * 2**host.holds, self._limits.held_s_max)
            if abs(action.held_s - wanted_s) > EARLY_S:
                raise Broken(f"{action.host} is held for {action.held_s} s, not {wanted_s} s", action.host)
            host.holds += 1
            host.until_s = now + action.held_s
        host.evacuated = action.evacuate

    def _uses(self, name: str, now: float, is_less_room: bool, is_pressed: bool) -> None:
        host = self._hosts.get(name, _Known())
        if host.until_s is None:
            raise Broken(f"{name} is used again, and was not held", name)
        is_early = now < host.until_s - EARLY_S
        makes_room = is_less_room or (is_pressed and not host.may_fail)
        if is_early and not makes_room:
            raise Broken(f"{name} is used again {host.until_s - now:.3g} s too early", name)
        if host.kinds and not makes_room:
            raise Broken(f"{name} is used again, and has {list(host.kinds)}", name)
        host.until_s, host.used_s, host.evacuated, host.uses = None, now, False, None
        if not host.is_there:
            del self._hosts[name]

    def _check(self, may_hold: bool) -> None:
        there = [host for host in self._hosts.values() if host.is_there]
        held = [host for host in there if host.until_s is not None]
        most = min(max(1, int(self._limits.hosts_share * len(there))), max(0, len(there) - 1))
        if len(held) > most:
            raise Broken(f"{len(held)} of {len(there)} hosts are held for their anomalies")
        waiting = [host for host in there if host.kinds and host.until_s is None]
        if may_hold and waiting and len(held) < most:
            raise Broken(f"only {len(held)} of {len(there)} hosts are held, and another has an anomaly")
        if may_hold and any(host.may_fail for host in waiting) and not all(host.may_fail for host in held):
            raise Broken("a host that is only slow is held, and one that may fail is not")

    def _things(self) -> Iterator[tuple[float, str]]:
        for name, host in self._hosts.items():
            if host.until_s is not None:
                yield host.until_s, f"{name} was held for long enough"


class Avoided:
    """Which hosts a run-time system does not use because it was told so, and what jobs are told of them.

    Args:
        rifs: what is known of its hosts.
        family: of resources.
    """

    def __init__(self, rifs: Rifs, family: Family) -> None:
        self._rifs = rifs
        self._family = family
        self._wished: dict[str, bool] = {}
        self._partly: dict[str, frozenset[DataUse]] = {}
        self._unfit: set[str] = set()
        self._told: dict[JobId, set[RifId]] = {}
        self._told_partly: dict[JobId, dict[RifId, frozenset[DataUse]]] = {}

    def saw(self, event: RtsEvent, actions: Sequence[RtsAction]) -> None:
        """The run-time system took an event, and its hosts are what they are now.

        Raises:
            Broken: a host is used that must not be, or the last one is not, or jobs know something else.
        """
        if type(event) is events.HostAvoided:
            self._avoid(event)
        elif type(event) is events.HostUsed:
            self._wished.pop(event.host, None)
            self._partly.pop(event.host, None)
        for action in actions:
            if type(action) is AcceptJob:
                self._told[action.job], self._told_partly[action.job] = set(), {}
            elif type(action) is JobChanged and action.state != "running":
                self._told.pop(action.job, None)
                self._told_partly.pop(action.job, None)
            elif type(action) is TellJobs:
                self._tell(action)
        usable = [host for host in self._rifs if host.is_up and self._is_usable(host)]
        used = [host for host in usable if host.state == "up"]
        for action in actions:
            if type(action) is RifChanged and action.state == "up":
                self._unfit.discard(action.host)
            elif type(action) is RifChanged and type(event) is events.RifUnfit:
                self._unfit.add(action.host)
        for host in usable:
            is_wished = host.host in self._wished
            if is_wished and host.state == "up" and len(used) > 1:
                raise Broken(f"{host.host} is to be avoided, and is used", host.rif_id)
            if is_wished and not used and host.host not in self._unfit:
                raise Broken(f"{host.host} is avoided, and no other host is used", host.rif_id)
            is_evacuated = (
                host.state != "up" and self._wished.get(host.host, False) and host.host not in self._unfit
            )
            for job, told in self._told.items():
                if is_evacuated != (host.rif_id in told):
                    raise Broken(f"{job}: {host.rif_id} {is_evacuated=}, and it was told {told}", job)
        self._check_partly(usable)

    def _avoid(self, event: events.HostAvoided) -> None:
        """A host is to be avoided, for all tasks or some; what was said before holds, too."""
        is_partly = event.host in self._partly or event.host not in self._wished
        if is_partly and event.uses:
            before = self._partly.get(event.host, frozenset())
            self._partly[event.host] = before | frozenset(event.uses)
            return
        self._partly.pop(event.host, None)
        self._unfit.discard(event.host)
        self._wished[event.host] = event.evacuate or self._wished.get(event.host, False)

    def _check_partly(self, usable: Sequence[Host]) -> None:
        """Jobs know for which tasks a host is the wrong one, while there is one without any anomaly."""
        used = [host for host in usable if host.state == "up"]
        is_free = any(host.host not in self._wished and host.host not in self._partly for host in used)
        for host in usable:
            uses = self._partly.get(host.host, frozenset()) if is_free and host in used else frozenset()
            for job, told in self._told_partly.items():
                if told.get(host.rif_id, frozenset()) != uses:
                    raise Broken(
                        f"{job}: {host.rif_id} is wrong for {set(uses)}, and it was told {told}", job
                    )

    def _tell(self, action: TellJobs) -> None:
        message = action.message
        for job in self._told.keys() & set(action.jobs):
            if isinstance(message, RifGone | Restrict):
                uses = frozenset(message.uses) if isinstance(message, Restrict) else frozenset()
                self._told_partly[job][message.rif_id] = uses
            if isinstance(message, RifGone) or (isinstance(message, Evacuate) and not message.reason):
                self._told[job].discard(message.rif_id)
            elif isinstance(message, Evacuate):
                self._told[job].add(message.rif_id)

    def _is_usable(self, host: Host) -> bool:
        """Whether something of it could be given out, and is not about to go."""
        left = host.there - host.leaving
        return any(self._family.class_of(name) != MEMORY_CLASS for name in left)


class Evacuated:
    """What a job sends to hosts that it is to leave: nothing. To restricted ones it sends nothing that they
    slow down, unless there is no other host.
    """

    def __init__(self) -> None:
        self._left: set[ResourceId] = set()
        self._known: dict[ResourceId, str] = {}
        self._wrong_for: dict[str, frozenset[DataUse]] = {}

    def saw(self, event: JobEvent, actions: Sequence[JobAction]) -> None:
        """The job took an event.

        Raises:
            Broken: it sends a task to a host that is evacuated, or is the wrong one for it.
        """
        if type(event) is ResourcesUp:
            self._known |= {one.resource_id: one.resource_class for one in event.resources}
        elif type(event) is HostRestricted:
            self._wrong_for[host_name(event.resources[0].resource_id)] = event.uses
        if type(event) is HostEvacuated:
            names = [resource.resource_id for resource in event.resources]
            self._left = self._left.union(names) if event.reason else self._left.difference(names)
        elif type(event) is ResourcesLost:
            self._left.difference_update(event.resource_ids)
            for name in event.resource_ids:
                self._known.pop(name, None)
            there = set(map(host_name, self._known))
            self._wrong_for = {host: uses for host, uses in self._wrong_for.items() if host in there}
        for action in actions:
            if type(action) is Submit:
                self._check_place(action)
                for name in action.resources:
                    if name in self._left:
                        task = f"task {action.submissions[0].task_id} of {action.job}"
                        raise Broken(f"{task} is sent to {name}, whose host is evacuated", task, name)

    def _check_place(self, action: Submit) -> None:
        """Nothing is sent where it is slowed down if a host without any anomaly has such a resource."""
        host = host_name(action.resources[0])
        uses = self._wrong_for.get(host)
        if not uses or not any(
            one == action.resource_class and not self._wrong_for.get(host_name(name))
            for name, one in self._known.items()
        ):
            return
        for one in action.submissions:
            has_files = any(argument.startswith(PLAN_MARK) for argument in one.arguments)
            fetches = one.options.stage_in and not any(map(is_reference, one.arguments))  # they may lie there
            is_remote = has_files or one.options.stage_out or fetches
            if (has_files and DataUse.FILES in uses) or (is_remote and DataUse.REMOTE in uses):
                task = f"task {one.task_id} of {action.job}"
                raise Broken(f"{task} is sent to {host}, which is wrong for {set(uses)}", task, host)
