"""Checker of grants: who holds which resource (invariants 4, 5, 6 and 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from attrs import define

from gspc_trio.components.rm.events import (
    Added,
    Claimed,
    JobGone,
    Removed,
    Rested,
    Resumed,
    RmAction,
    RmEvent,
)
from gspc_trio.components.rm.messages import (
    Demand,
    Grant,
    Interrupt,
    Lapsed,
    Recall,
    Refuse,
    Release,
    Revoke,
    Revoked,
)
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId
from gspc_trio.core.task import Shape
from gspc_trio.protocol.limits import DEFAULT_LIMITS
from gspc_trio.records.facts import GrantChanged, ResourceChanged
from gspc_trio.testing.checkers.base import Broken, Family


@define(eq=False)
class Live:
    """A grant that has not ended; ``pieces`` of memory are (whose, offset, bytes)."""

    grant_id: GrantId
    job: JobId
    left: set[ResourceId]
    revoked: bool = False
    pieces: tuple[tuple[ResourceId, int, int], ...] = ()


class Grants:
    """The grants of one resource manager, from what it hears and says: invariants 4, 5, 6 and 7.

    Args:
        family: of the resources.
        quiet_since: returns the time of the last fault.
        last: newest grant of the resource managers before.
    """

    def __init__(self, family: Family, quiet_since: Callable[[], float], last: GrantId = NO_GRANT) -> None:
        self._family = family
        self._quiet_since = quiet_since
        self._live: dict[GrantId, Live] = {}
        self._held: dict[ResourceId, Live] = {}
        self._there: set[ResourceId] = set()
        self.last: GrantId = last
        self._credit: dict[tuple[JobId, Shape], int] = {}
        self._sent: dict[tuple[JobId, Shape], list[GrantId]] = {}
        self._dead: dict[JobId, float] = {}
        self._gone: dict[JobId, float] = {}
        self._successors: dict[JobId, JobId] = {}
        self._resting: set[ResourceId] = set()
        self._leaving: set[ResourceId] = set()
        self._recalled: set[GrantId] = set()
        self._cut_off: list[tuple[GrantId, ResourceId]] = []

    @property
    def resources(self) -> int:
        """Number of resources that are there."""
        return len(self._there)

    @property
    def size(self) -> int:
        """Number of resources that are there, of grants, and of kinds of resources that jobs wait for."""
        return len(self._there) + len(self._live) + sum(1 for credit in self._credit.values() if credit)

    @property
    def there(self) -> Set[ResourceId]:
        """The resources that are there."""
        return self._there

    @property
    def live(self) -> Mapping[GrantId, Live]:
        """The grants that have not ended."""
        return self._live

    def credit(self, key: tuple[JobId, Shape]) -> int:
        """Return how much of what a job has asked for no grant has used."""
        return self._credit.get(key, 0)

    def is_leaving(self, name: ResourceId) -> bool:
        """Whether a resource is to leave."""
        return name in self._leaving

    def is_closed(self, name: ResourceId) -> bool:
        """Whether a resource, or one that it contains or is contained in, is to leave or to rest."""
        return any(near in self._leaving or near in self._resting for near in self._family.near(name))

    def is_open(self, name: ResourceId) -> bool:
        """Whether a resource that is there may be given to whom it is due."""
        return not self.is_closed(name) and not any(near in self._held for near in self._family.near(name))

    def job_died(self, job: JobId, now: float, grace_s: float) -> None:
        """The job's process is gone; its work may go on for the grace."""
        self._gone[job] = now
        self._dead[job] = grace_s

    def adopted(self, orphan: JobId, successor: JobId) -> None:
        """A job goes on for another, whose work may go on for as long as the successor is there."""
        self._successors[orphan] = successor

    def saw(self, event: RmEvent, now: float, actions: Sequence[RmAction]) -> None:
        """The resource manager took an event."""
        due = self._due(event)
        if type(event) is Release:
            live = self._live.get(event.grant_id)
            if live is None or not live.revoked:  # else its host says when it is free
                self._end(event.grant_id, event.resources, event.job)
        elif type(event) is Demand:
            self._demand(event)
        elif type(event) is Revoked:
            live = self._live.get(event.grant_id)
            if live is not None and live.revoked:
                self._end(event.grant_id, event.resources, live.job)
        elif type(event) is Interrupt:
            self._credit.update({key: 0 for key in self._credit if key[0] == event.job})
        elif type(event) is Resumed:
            self._resting.difference_update(event.resource_ids)
        elif type(event) is Claimed and event.whole:
            self._begin_anew(event)
        elif type(event) is Added:
            self._family.add(event)
        elif type(event) is JobGone and event.fenced:
            for live in [live for live in self._live.values() if live.job == event.job]:
                self._end(live.grant_id, (), live.job)
        if type(event) is JobGone:
            self._credit.update({key: 0 for key in self._credit if key[0] == event.job})
        for action in actions:
            if type(action) is ResourceChanged:
                self._changed(action, event)
            elif type(action) is Refuse:
                self._credit.pop((action.job, action.shape), None)
        given = {action.grant_id for action in actions if type(action) is Grant}
        for action in actions:
            if type(action) is Grant:
                self._grant(action, now)
            elif type(action) is GrantChanged and not action.held and type(event) is Claimed:
                self._end(action.grant_id, action.resources, action.job)
            elif type(action) is GrantChanged and not action.held:
                self._free(action)
            elif type(action) is GrantChanged and action.grant_id not in given:
                self._take_back(action)
            elif type(action) is Lapsed and type(event) in (Claimed, Added):
                for grant_id in action.grant_ids:
                    live = self._live.get(grant_id)
                    if live is not None and not live.revoked:  # else its host says when it is free
                        self._end(grant_id, (), action.job)
            elif type(action) is Revoke and action.grant_id in self._live:
                self._live[action.grant_id].revoked = True
        self._look_at_due(event, due, actions)
        if self._dead:
            self._look_at_the_dead(now)

    def _due(self, event: RmEvent) -> dict[GrantId, tuple[ResourceId, ...]]:
        """Return of which grants what must be free, or revoked, as soon as this event was taken."""
        if type(event) is Release or type(event) is Revoked:
            live = self._live.get(event.grant_id)
            if (
                live is None
                or live.revoked != (type(event) is Revoked)
                or getattr(event, "job", live.job) != live.job
            ):
                return {}
            names = event.resources or tuple(live.left)
            return {live.grant_id: tuple(name for name in names if name in live.left)}
        if type(event) is JobGone and not event.fenced:
            return {
                live.grant_id: ()
                for live in self._live.values()
                if live.job == event.job and not live.revoked
            }
        return {}

    def _look_at_due(
        self, event: RmEvent, due: dict[GrantId, tuple[ResourceId, ...]], actions: Sequence[RmAction]
    ) -> None:
        """What must be done at once has been: freed, revoked, told, recalled."""
        if type(event) is Claimed and event.whole:  # the job may not have heard what was recalled before
            self._recalled.difference_update(grant.grant_id for grant in event.grants)
        for action in actions:
            if type(action) is Recall:
                self._recalled.update(action.grant_ids)
        freed = {
            (action.grant_id, name)
            for action in actions
            if due and type(action) is GrantChanged and not action.held
            for name in action.resources
        }
        for grant_id, names in due.items():
            live = self._live.get(grant_id)
            if type(event) is JobGone and live is not None and not live.revoked:
                raise Broken(f"{event.job} is gone, and its grant {grant_id} is not revoked", *live.left)
            kept = [name for name in names if (grant_id, name) not in freed]
            if kept:
                raise Broken(f"{kept[0]} of grant {grant_id} was given back, and is not free", *kept)
        self._look_at_lapsed(actions)
        if type(event) is Rested:
            self._resting.update(name for name in event.resource_ids if name in self._there)
            self._check_recalled(event.resource_ids)
        elif type(event) is Removed and event.policy == "wait":
            below = {one for one in self._there if self._family.is_below(one, event.resource_ids)}
            self._leaving |= below
            self._check_recalled(below)
        elif type(event) is Claimed or type(event) is Added:
            self._check_recalled(self._leaving | self._resting)

    def _look_at_lapsed(self, actions: Sequence[RmAction]) -> None:
        """What has lapsed was told, and what such a grant holds besides is revoked."""
        lapsed = {name for action in actions if type(action) is Lapsed for name in action.grant_ids}
        for grant_id in lapsed:
            live = self._live.get(grant_id)
            if live is not None and not live.revoked:
                raise Broken(f"grant {grant_id} has lapsed, and its rest is not revoked", *live.left)
        for grant_id, name in self._cut_off:
            if grant_id not in lapsed:
                raise Broken(f"{name} of grant {grant_id} was removed, and nobody is told", name)
        self._cut_off.clear()

    def _check_recalled(self, names: Iterable[ResourceId]) -> None:
        """What is held of these, or related to them, is to be given back."""
        for name in names:
            for near in self._family.near(name):
                live = self._held.get(near)
                if live is not None and not live.revoked and live.grant_id not in self._recalled:
                    raise Broken(f"{name} is to go or to rest, and grant {live.grant_id} not recalled", near)

    def _changed(self, record: ResourceChanged, event: RmEvent) -> None:
        name = record.resource_id
        if record.state == "added":
            self._there.add(name)
            return
        self._there.discard(name)
        self._resting.discard(name)
        self._leaving.discard(name)
        live = self._held.get(name)
        if live is not None:
            if type(event) is Removed and event.policy != "lose":
                raise Broken(
                    f"{name} was to be removed when it is free, and grant {live.grant_id} has it", name
                )
            if not live.revoked:
                self._cut_off.append((live.grant_id, name))
            self._end(live.grant_id, (name,), live.job)

    def _demand(self, event: Demand) -> None:
        key = (event.job, event.shape)
        sent = self._sent[key] = [grant for grant in self._sent.get(key, ()) if grant > event.seen]
        self._credit[key] = max(0, event.credit - len(sent))

    def _grant(self, grant: Grant, now: float) -> None:
        if self._is_overdue(self._gone.get(grant.job), now):
            raise Broken(f"{grant.job}, long dead, is given grant {grant.grant_id}", *grant.resources)
        if grant.grant_id <= self.last:
            raise Broken(f"grant {grant.grant_id} follows {self.last}", *grant.resources)
        self.last = grant.grant_id
        key = (grant.job, grant.shape)
        if self._credit.get(key, 0) <= 0:
            raise Broken(f"{grant.job} got grant {grant.grant_id} without credit", *grant.resources)
        self._credit[key] -= 1
        self._sent.setdefault(key, []).append(grant.grant_id)
        live = self._live[grant.grant_id] = Live(grant.grant_id, grant.job, set())
        self._hold(live, grant.resources)
        self._check_open(grant)
        self._check_shape(grant)
        self._take_memory(live, grant)

    def _check_open(self, grant: Grant) -> None:
        """Nothing is given out that is to leave or to rest; who had it before that may claim it."""
        for name in grant.resources:
            for relative in self._family.near(name):
                if relative in self._leaving or relative in self._resting:
                    raise Broken(f"{name} is granted, and {relative} is to leave or to rest", name, relative)

    def _check_shape(self, grant: Grant) -> None:
        """What is given is what was asked for."""
        shape, names = grant.shape, grant.resources
        if len(names) != len(shape.requirements):
            raise Broken(f"grant {grant.grant_id} for {shape} has {len(names)} resources", *names)
        for name, requirement in zip(names, shape.requirements, strict=True):
            its_class = self._family.class_of(name)
            if its_class != requirement.resource_class:
                raise Broken(f"{name}, a {its_class}, is granted for {shape}", name)
            if requirement.hard and not self._family.is_below(name, requirement.preferences):
                raise Broken(f"{name} is granted for {shape}", name)
            if not self._family.suits(name, requirement.features):
                raise Broken(f"{name}, whose host has not all of the features, is granted for {shape}", name)
        if shape.same_host and len({name.partition(".")[0] for name in names}) > 1:
            raise Broken(f"{', '.join(names)} on one host are granted", *names)

    def _take_memory(self, live: Live, grant: Grant) -> None:
        """Pieces of memory are those that were asked for, lie in that of a host, and are nobody else's."""
        shape = grant.shape
        sizes = [size for size in (shape.memory_bytes, *shape.memories) if size]
        if len(sizes) != len(grant.memories):
            raise Broken(f"grant {grant.grant_id} has {len(grant.memories)} of {len(sizes)} pieces of memory")
        live.pieces = tuple(
            (name, offset, size) for (name, offset), size in zip(grant.memories, sizes, strict=True)
        )
        for name, offset, size in live.pieces:
            if offset < 0 or offset + size > self._family.memory_bytes(name):
                raise Broken(f"grant {grant.grant_id} has memory beyond that of {name}", name)
            for other in self._live.values():
                for near, begin, length in other.pieces if other is not live else ():
                    if near == name and begin < offset + size and offset < begin + length:
                        raise Broken(
                            f"grants {grant.grant_id} and {other.grant_id} have the same memory of {name}",
                            name,
                        )

    def _hold(self, live: Live, names: tuple[ResourceId, ...]) -> None:
        for name in names:
            if name not in self._there:
                raise Broken(f"{name} is granted and not there", name)
            for relative in self._family.near(name):
                other = self._held.get(relative)
                if other is not None:
                    raise Broken(
                        f"{name} is granted to {live.job} while {relative} is held by {other.job} "
                        f"under grant {other.grant_id}",
                        name,
                        relative,
                    )
            self._held[name] = live
            live.left.add(name)

    def _begin_anew(self, event: Claimed) -> None:
        """A job is back, and says what it still has: all else it has given back, and it demands nothing."""
        kept = {grant.grant_id for grant in event.grants}
        for live in [live for live in self._live.values() if live.job == event.job]:
            if live.grant_id not in kept and not live.revoked:
                self._end(live.grant_id, (), live.job)
        self._credit.update({key: 0 for key in self._credit if key[0] == event.job})
        self._sent.update({key: [] for key in self._sent if key[0] == event.job})

    def _take_back(self, record: GrantChanged) -> None:
        """A grant of an earlier resource manager is in use still."""
        live = self._live.setdefault(record.grant_id, Live(record.grant_id, record.job, set()))
        self._hold(live, record.resources)

    def _free(self, record: GrantChanged) -> None:
        for name in record.resources:
            live = self._held.get(name)
            if live is not None and live.grant_id == record.grant_id:
                raise Broken(f"{name} is free, but grant {record.grant_id} was not given back", name)

    def _end(self, grant_id: GrantId, names: tuple[ResourceId, ...], job: JobId) -> None:
        live = self._live.get(grant_id)
        if live is None or live.job != job:
            return
        for name in names or tuple(live.left):
            if name in live.left:
                live.left.discard(name)
                del self._held[name]
        if not live.left:
            del self._live[grant_id]

    def _is_overdue(self, since_s: float | None, now: float, grace_s: float = 0.0) -> bool:
        """Whether what became known then, or could since the last fault, must have been seen to."""
        if since_s is None:
            return False
        lease_s, heartbeat_s = DEFAULT_LIMITS.lease_s, DEFAULT_LIMITS.heartbeat_s
        return now > max(since_s, self._quiet_since()) + grace_s + 2 * lease_s + 2 * heartbeat_s

    def _look_at_the_dead(self, now: float) -> None:
        for job, grace_s in list(self._dead.items()):
            # The work of a job that another goes on for ends with that one, which may be awaited itself.
            if not self._is_overdue(self._gone.get(self._successors.get(job, job)), now, grace_s):
                continue
            left = [live for live in self._live.values() if live.job == job]
            if left:
                raise Broken(
                    f"{job}, dead for {now - self._gone[job]:.1f} s, still holds grant {left[0].grant_id}",
                    *left[0].left,
                )
            del self._dead[job]
