"""State of the RTS machine: RIFs with their life cycle and resources, and jobs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec import Struct, field

from gspc_trio.components.rif.messages import DagReport
from gspc_trio.core.ids import GrantId, JobId, ResourceId, RifId
from gspc_trio.core.resources import BadResources, Resource, ResourceDag, is_lent
from gspc_trio.core.task import DataUse
from gspc_trio.records.facts import RifChanged


class Limits(Struct, frozen=True):
    """Times and sizes that bound what the RTS does.

    Attributes:
        bootstrap_timeout_s: how long a RIF may take from its start to its first word.
        come_up_s: the same for strategies that state a time of their own; inf: as long as it takes.
        end_margin_s: so long before its host ends a RIF is taken down.
        retry_delays_s: pauses before a lost RIF is bootstrapped again: the first time, the second, and so on;
            the last one again and again.
        stable_after_s: after a RIF has been up for so long they begin anew.
        revoke_timeout_s: how long a RIF may take to say that revoked work has ended; less than the lease.
        stop_grace_s: how long a RIF that was asked to stop may take before it is killed.
        grace_s: how long a RIF or a job that cannot be heard is awaited, with all that it has; 0: not at all.
        fresh_s: how long a RIF is awaited that was not up yet when its run-time system went.
        adrift_end_s: after so long a RIF that no strategy can end, and that was given up, has ended itself.
        unwatched_end_s: the same for one of which its strategy has lost track, if it stood still.
        quarantine_delays_s: how long a host that cannot start processes is not used: the first time, the
            second, and so on; it begins anew when that did not happen for ``stable_after_s``.
        rifs_max: RIFs at one time.
        jobs_max: jobs at one time.
        requests_max: requests waiting for one RIF.
        detail_characters_max: of what is kept of why a job ended.
    """

    bootstrap_timeout_s: float = 30.0
    come_up_s: dict[str, float] = msgspec.field(default_factory=dict)
    end_margin_s: float = 2.0
    retry_delays_s: tuple[float, ...] = (0.1, 1.0, 5.0, 10.0, 20.0, 40.0, 60.0)
    stable_after_s: float = 60.0
    revoke_timeout_s: float = 5.0
    stop_grace_s: float = 1.0
    grace_s: float = 0.0
    fresh_s: float = 5.0
    adrift_end_s: float = 8.0
    unwatched_end_s: float = 30.0
    quarantine_delays_s: tuple[float, ...] = (2.0, 10.0, 60.0)
    rifs_max: int = 20_000
    jobs_max: int = 10_000
    requests_max: int = 1_000
    detail_characters_max: int = 2_000

    @property
    def last_end_s(self) -> float:
        """After so long all processes of an incarnation that was given up have ended, watched or not."""
        return max(self.unwatched_end_s, self.grace_s + self.adrift_end_s)


class RifState(StrEnum):
    """Where a RIF is in its life."""

    STARTING = "starting"
    """Its strategy is at work, or it is adding its first resources; jobs do not know of it."""
    UP = "up"
    AWAY = "away"
    """It cannot be heard, and is awaited: its work may go on, and jobs keep what they hold there."""
    LOST = "lost"
    """It is over; when nothing is left of this incarnation the next one follows, after a pause."""
    FAILED = "failed"
    """It was asked for and did not come up; no more is tried."""
    STOPPING = "stopping"


TRANSITIONS: dict[RifState, frozenset[RifState]] = {
    RifState.STARTING: frozenset({RifState.UP, RifState.LOST, RifState.STOPPING}),
    RifState.UP: frozenset({RifState.AWAY, RifState.LOST, RifState.STOPPING}),
    RifState.AWAY: frozenset({RifState.UP, RifState.STARTING, RifState.LOST, RifState.STOPPING}),
    RifState.LOST: frozenset({RifState.STARTING, RifState.FAILED, RifState.STOPPING}),
    RifState.FAILED: frozenset({RifState.STOPPING}),
    RifState.STOPPING: frozenset(),
}
"""Where a RIF may go from where it is; a new one is starting, or away if an earlier run-time system had it
(and starts on from there if that one had not seen it up); one that has stopped is forgotten.
"""


class Add(Struct, frozen=True):
    """A RIF is to start workers for these; ``ask`` is None for those that it gets when it comes up."""

    resources: tuple[Resource, ...]
    ask: int | None = None


class Remove(Struct, frozen=True):
    """A user wants these resources to go."""

    resource_ids: tuple[ResourceId, ...]
    policy: str
    ask: int


class Clear(Struct, frozen=True):
    """The RM has given these up; the RIF is to stop their workers."""

    resource_ids: tuple[ResourceId, ...]
    ask: int | None


Request: TypeAlias = Add | Remove | Clear


class Removal(Struct, eq=False):
    """A removal on which the RM has not said its last word.

    Attributes:
        outstanding: what is still there.
        undecided: whether the RM may refuse it. Until it has said so nobody knows what else is to go with a
            resource above these, so that nothing more is asked of the RIF.
    """

    ask: int
    resource_ids: tuple[ResourceId, ...]
    outstanding: set[ResourceId]
    undecided: bool = False


class Owed(Struct, eq=False):
    """A revoke that a RIF has to answer: for these resources, at ``due_at`` at the latest."""

    due_at: float
    resource_ids: set[ResourceId]


class Quarantine(Struct, frozen=True):
    """A host is not used, for it cannot start processes.

    Attributes:
        reason: what it says.
        due_s: when it is tried again.
        resource_ids: what the RM gives out nothing of.
        evacuate: jobs are to bring away what is there.
    """

    reason: str
    due_s: float
    resource_ids: tuple[ResourceId, ...]
    evacuate: bool = False


class Restriction(Struct, frozen=True):
    """A host is not used for tasks that use data in some ways.

    Attributes:
        reason: why.
        uses: the ways.
    """

    reason: str
    uses: tuple[DataUse, ...]

    def __str__(self) -> str:
        return f"no new tasks with {' or '.join(self.uses)}: {self.reason}"


class ManagedRif(Struct, eq=False):
    """One RIF through all its incarnations.

    Attributes:
        incarnation: the newest one; older ones are refused.
        running: the strategy has something of it: ``StartRif`` was given out and ``RifEnded`` has not come.
        killed: the strategy was told to end it.
        adrift: no strategy has it, though it may run: an earlier run-time system has started it, or its
            strategy cannot see it any more.
        fresh: it was not up yet when the earlier run-time system went: it is let in, or ends by itself.
        doubled: another process of the newest incarnation was refused: what its strategy says may be true of
            that one.
        link: the connection, while there is one.
        resources: what is added to it, parents before children.
        leaving: those of them that are being removed, ``left`` those that the RM has given up already.
        wanted: what it gets when it is up: None for what its host has.
        tries: how often it was bootstrapped again since it was last stable.
        pause_s: between the end of the last incarnation and the next one.
        up_at: when it came up.
        until_s: when it is taken down, because its host ends; None: nobody knows of an end.
        timer_at: when it must have come up or back, answered a revoke or stopped, or is bootstrapped again.
        owed: revokes that it has to answer, oldest first.
        reason: why it is not up.
        ask: the question that is answered when it is up and the RM knows it, or it has failed.
        proven: it has come up as it was asked for: from then on it is not given up.
        request, call: what it is doing, and under which number.
        report: what it said when it had done that; the RM's word is still to come.
        waiting: what it does after that.
        removals: those that wait for the RM.
        unsaid: revokes that it is to be told of when it is back.
        quarantine: that its host is in, or None; ``quarantines``: how often it was in one lately.
        restriction: for which tasks its host is not used, or None.
        fit_at: when the last one was over.
        block, node, nodes: the block of which it is, "" for none, which of its nodes it has, and how many
            there are.
        once: it is not started again when it is lost, but forgotten with its block.
        ordered: it has got its order from the service at which the RIFs of blocks enrol.
    """

    rif_id: RifId
    host: str
    strategy: str
    cores: int
    options: dict[str, str]
    state: RifState = RifState.STARTING
    incarnation: int = 0
    running: bool = False
    killed: bool = False
    adrift: bool = False
    fresh: bool = False
    doubled: bool = False
    link: int | None = None
    address: str = ""
    outside: str = ""
    pid: int = 0
    resources: dict[ResourceId, Resource] = field(default_factory=dict)
    leaving: set[ResourceId] = field(default_factory=set)
    left: set[ResourceId] = field(default_factory=set)
    wanted: tuple[Resource, ...] | None = None
    tries: int = 0
    pause_s: float = 0.0
    up_at: float = 0.0
    until_s: float | None = None
    timer_at: float | None = None
    owed: dict[GrantId, Owed] = field(default_factory=dict)
    reason: str = ""
    ask: int | None = None
    proven: bool = False
    request: Add | Clear | None = None
    call: int = 0
    report: DagReport | None = None
    waiting: deque[Request] = field(default_factory=deque)
    removals: list[Removal] = field(default_factory=list)
    unsaid: dict[GrantId, tuple[ResourceId, ...]] = field(default_factory=dict)
    quarantine: Quarantine | None = None
    quarantines: int = 0
    restriction: Restriction | None = None
    fit_at: float = -math.inf
    block: str = ""
    node: int = 0
    nodes: int = 1
    once: bool = False
    ordered: bool = False

    @property
    def shown(self) -> tuple[str, str]:
        """What people are told of it: its state, and why it is not up."""
        if self.quarantine is not None and self.state is RifState.UP:
            return "quarantined", self.quarantine.reason
        if self.restriction is not None and self.state is RifState.UP:
            return str(self.state), str(self.restriction)
        if self.is_to_come_again:
            return str(self.state), f"{self.reason}; it is tried again after {self.pause_s:g} s"
        return str(self.state), self.reason

    def record(self, now: float) -> RifChanged:
        """Return what people are told of it, with the end of its host while it is there."""
        ends_in_s = self.ends_in_s(now) if self.is_there else None
        return RifChanged(now, self.rif_id, self.host, *self.shown, ends_in_s)

    @property
    def is_first_try(self) -> bool:
        """Whether somebody is told that it has failed if it is lost now, and no more is tried."""
        return self.ask is not None and not self.proven

    @property
    def is_to_come_again(self) -> bool:
        """Whether nothing is left of it, and the next incarnation only waits for its time."""
        return self.state is RifState.LOST and self.timer_at is not None

    def retry_in_s(self, now: float) -> float | None:
        """Return in how many seconds the next incarnation is started; None: it waits for no time."""
        return max(0.0, self.timer_at - now) if self.is_to_come_again and self.timer_at is not None else None

    def ends_in_s(self, now: float) -> float | None:
        """Return in how many seconds it is taken down because its host ends; None: nobody knows of an end."""
        return None if self.until_s is None else max(0.0, self.until_s - now)

    def awaited_s(self, limits: Limits) -> float:
        """Return how long it is awaited when it is away."""
        return limits.fresh_s if self.fresh else limits.grace_s

    def end_s(self, limits: Limits) -> float:
        """Return after how long nothing of it runs any more, though nobody sees that."""
        if self.doubled:
            return limits.last_end_s
        return limits.adrift_end_s if self.adrift and not self.fresh else 0.0

    def move(self, state: RifState) -> None:
        """Go on to another state, as :data:`TRANSITIONS` allows."""
        assert state in TRANSITIONS[self.state], f"{self.rif_id} from {self.state} to {state}"
        self.state = state

    @property
    def is_there(self) -> bool:
        """Whether it is connected, or awaited with what it has."""
        return (self.link is not None and self.state is not RifState.STOPPING) or self.state is RifState.AWAY

    @property
    def is_undecided(self) -> bool:
        """Whether the RM has not said yet whether it refuses a removal."""
        return any(removal.undecided for removal in self.removals)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked of it: what it has is what it was told to have."""
        return not (self.ask is not None or self.request or self.waiting or self.removals or self.leaving)

    def drop_requests(self) -> list[int]:
        """Forget what is asked of it; return the questions that wait for that."""
        asks = [self.request.ask] if self.request else []
        asks += [removal.ask for removal in self.removals]
        asks += [request.ask for request in self.waiting]
        self.request = self.report = None
        self.removals.clear()
        self.waiting.clear()
        return [ask for ask in asks if ask is not None]

    def staying(self) -> tuple[Resource, ...]:
        """Return the resources of its own that nobody removes, parents before children."""
        there = self.resources.items()
        return tuple(one for name, one in there if name not in self.leaving and not is_lent(name))

    def usable(self) -> tuple[Resource, ...]:
        """Return the resources that the RM still has, parents before children."""
        return tuple(resource for name, resource in self.resources.items() if name not in self.left)

    def owe(self, grant_id: GrantId, resource_ids: Iterable[ResourceId], due_at: float) -> None:
        """Note that it has to say when nothing runs any more under the grant on these resources."""
        self.owed.setdefault(grant_id, Owed(due_at, set())).resource_ids.update(resource_ids)
        self.timer_at = next(iter(self.owed.values())).due_at

    def settle(self, resource_ids: Iterable[ResourceId], grant_id: GrantId | None = None) -> None:
        """Note that it need not say so any more: for one grant, or whatever the grant."""
        for owed_id in [grant_id] if grant_id is not None else list(self.owed):
            owed = self.owed.get(owed_id)
            if owed is not None:
                owed.resource_ids.difference_update(resource_ids)
                if not owed.resource_ids:
                    del self.owed[owed_id]
        self.timer_at = next((owed.due_at for owed in self.owed.values()), None)


_OF_SITE = "site "


def site_strategy(site: str) -> str:
    """Return the name of the strategy that starts the blocks of a site."""
    return f"{_OF_SITE}{site}"


def is_of_site(strategy: str) -> bool:
    """Return whether a strategy is that of the blocks of a site."""
    return strategy.startswith(_OF_SITE)


class ManagedJob(Struct, frozen=True):
    """One registered job.

    Attributes:
        grace_s: how long it is kept when its job server is gone.
        away_until: when it is given up; None while its job server is there.
        successor: the job that has adopted it, with which it ends at the latest.
        registered_s: when it was first heard of.
        placement: from which host its resources come; "": as the run-time system does.
    """

    job: JobId
    link: int
    name: str
    pid: int
    host: str
    address: str
    weight: float
    grace_s: float = 0.0
    away_until: float | None = None
    successor: JobId = ""
    priority: int = 0
    registered_s: float = 0.0
    placement: str = ""


def checked_dag(rif: ManagedRif, resources: tuple[Resource, ...]) -> tuple[Resource, ...]:
    """Return resources that may be added to a RIF, parents before children.

    Raises:
        BadResources: an id is not of this RIF or there already, a parent is missing, or there is a cycle.
    """
    prefix = f"{rif.rif_id}."
    for resource in resources:
        if not resource.resource_id.startswith(prefix) or resource.resource_id == prefix:
            raise BadResources(
                f"resource ids of {rif.rif_id} begin with {prefix}, not as in {resource.resource_id}"
            )
        if resource.resource_id in rif.resources:
            raise BadResources(f"{rif.rif_id} has the resource {resource.resource_id} already")
        leaving = [parent for parent in resource.parents if parent in rif.leaving]
        if leaving:
            raise BadResources(f"{leaving[0]}, a parent of {resource.resource_id}, is being removed")
    new = {resource.resource_id for resource in resources}
    old = [known for known in rif.resources.values() if known.resource_id not in rif.leaving]
    return tuple(one for one in ResourceDag((*old, *resources)) if one.resource_id in new)


def with_descendants(rif: ManagedRif, resource_ids: tuple[ResourceId, ...]) -> tuple[ResourceId, ...]:
    """Return these resources of a RIF and all below them that are not leaving yet, parents before children.

    Raises:
        BadResources: one is not there, or is being removed.
    """
    missing = [resource_id for resource_id in resource_ids if resource_id not in rif.resources]
    if missing:
        there = ", ".join(rif.resources) or "none"
        raise BadResources(f"{rif.rif_id} has no resource {', '.join(missing)}; it has {there}")
    leaving = [resource_id for resource_id in resource_ids if resource_id in rif.leaving]
    if leaving:
        raise BadResources(f"{', '.join(leaving)}: being removed already")
    chosen = set(resource_ids)
    for resource in rif.resources.values():
        if not chosen.isdisjoint(resource.parents) and resource.resource_id not in rif.leaving:
            chosen.add(resource.resource_id)
    return tuple(resource_id for resource_id in rif.resources if resource_id in chosen)


def check_rif(rif: ManagedRif) -> None:
    """Assert the invariants of one RIF."""
    state = rif.state
    assert not rif.unsaid or state is RifState.AWAY, rif
    assert rif.running or rif.adrift or state in (RifState.LOST, RifState.FAILED), rif
    assert not (rif.running and rif.adrift), rif
    assert not rif.fresh or rif.adrift, rif
    assert not rif.running or state is not RifState.FAILED, rif
    assert rif.link is None or state in (RifState.STARTING, RifState.UP, RifState.STOPPING), rif
    assert rif.link is not None or state is not RifState.UP, rif
    assert not rif.resources or state in (RifState.UP, RifState.AWAY), rif
    assert rif.killed or state is not RifState.LOST or not rif.running or rif.once, rif
    assert not rif.once or rif.block, rif
    assert rif.ask is None or state in (RifState.STARTING, RifState.UP, RifState.LOST), rif
    assert (rif.timer_at is not None) == (
        state is RifState.STARTING
        or (state is RifState.LOST and not rif.running)
        or (state is RifState.STOPPING and not rif.killed)
        or state is RifState.AWAY
        or bool(rif.owed)
    ), rif
    assert not (rif.waiting or rif.removals or rif.request) or rif.link is not None, rif
    assert rif.left <= rif.leaving <= set(rif.resources), rif
    outstanding = [name for removal in rif.removals for name in removal.outstanding]
    assert len(outstanding) == len(set(outstanding)), rif
    assert set(outstanding) == rif.leaving - rif.left, rif
    assert not rif.owed or state is RifState.UP, rif
    owed = [name for revoke in rif.owed.values() for name in revoke.resource_ids]
    assert set(owed) <= set(rif.resources) - rif.left, rif
    assert all(revoke.resource_ids for revoke in rif.owed.values()), rif
    assert rif.report is None or rif.request is not None, rif
    staying = [one for name, one in rif.resources.items() if name not in rif.leaving]
    assert all(parent in rif.resources for one in staying for parent in one.parents), rif
