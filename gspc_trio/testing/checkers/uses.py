"""Checker of a RIF's fence: who may use a resource, from what the RIF is told and says.

Who may use a resource follows from all that was used before; what has lapsed is being ended, is said to be
over just when nothing of it is left, and is no longer claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import define

from gspc_trio.components.rif.events import (
    AtWorker,
    Called,
    CheckGrant,
    EndJob,
    GrantChecked,
    HostAction,
    HostEvent,
    ReplyError,
    StartWorker,
    Stop,
    StopWorker,
)
from gspc_trio.components.rif.messages import Claim, Hold, RemoveResources
from gspc_trio.components.rm.messages import GrantsAhead, Revoke, Revoked
from gspc_trio.components.worker.machine import QUEUE_ITEMS_MAX
from gspc_trio.components.worker.messages import Cancel, Finished, OpenJob, Submit, TakeBack
from gspc_trio.components.worker.verdict import is_refusal
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Reason
from gspc_trio.testing.checkers.attempts import Attempts
from gspc_trio.testing.checkers.base import Broken


@define(eq=False)
class _Place:
    """A resource of the host.

    ``used`` is the newest grant that was used on it, by ``user``, ``below`` on what it contains: older ones
    have lapsed, on relatives too. ``closed`` has lapsed: it was revoked, or has gone with what contained it.
    So has ``before``, which is as old as the resource.
    """

    resource: Resource
    above: frozenset[ResourceId]
    before: GrantId
    attempts: Attempts
    closed: GrantId = NO_GRANT
    used: GrantId = NO_GRANT
    user: int = 0
    below: GrantId = NO_GRANT
    holder: tuple[JobId, GrantId] | None = None
    removing: bool = False
    work: _Work | None = None


@define(eq=False)
class _Work:
    """What one worker does under a grant, and which resources of this host that takes."""

    attempts: Attempts
    names: tuple[ResourceId, ...]


class Uses:
    """What a RIF and its workers are used for, folded by itself."""

    def __init__(self) -> None:
        self._places: dict[ResourceId, _Place] = {}
        self._jobs: dict[JobId, OpenJob] = {}
        self._numbers: dict[JobId, int] = {}
        self._jobs_opened = 0
        self._newest = NO_GRANT
        self._ahead: dict[int, int] = {}
        self._awaited: list[tuple[Revoked, set[ResourceId]]] = []
        self._is_stopping = False
        self._touched: dict[ResourceId, Attempts] = {}

    def saw(self, event: HostEvent, now: float, actions: Sequence[HostAction]) -> None:
        """Take an event, and what the RIF and its workers did.

        Raises:
            Broken: they should not have.
        """
        if type(event) is AtWorker:
            place = self._places.get(event.resource_id)
            if place is not None:
                self._touch(place.attempts, now).told(event.event)
        elif type(event) is not Tick:
            self._told(event, now, actions)
        if not actions and not self._touched:
            return
        refused = {id(one) for one in actions if type(one) is Finished and all(map(is_refusal, one.outcomes))}
        said: list[Revoked] = []
        for action in actions:
            if type(action) is StartWorker:
                self._add(action.resource)
            elif type(action) is StopWorker:
                self._remove(action.resource_id)
            elif type(action) is Revoked:
                said.append(action)
            elif type(action) is Finished:
                if type(event) is Submit and id(action) in refused:
                    continue
                attempts = self._touch(self._places[action.resource_id].attempts, now)
                for outcome in action.outcomes:
                    attempts.reports(outcome)
            elif (name := getattr(action, "resource_id", "")) in self._places:
                self._touch(self._places[name].attempts, now).acts(action)
        self._look(said)

    def check_claims(self, claims: Sequence[Claim]) -> None:
        """See that a RIF would claim what is in use and not being ended, and nothing else."""
        found = set()
        for name, place in self._places.items():
            doing = place.work
            if doing is not None and not doing.attempts.ending:
                found.add(Claim(doing.attempts.job, doing.attempts.grant_id, doing.names))
            if place.holder is not None:
                found.add(Claim(*place.holder, (name,)))
        wrong = found ^ set(claims)
        if wrong:
            raise Broken(f"a RIF would claim {sorted(map(str, claims))}, not {sorted(map(str, found))}")

    def at_rest(self) -> None:
        """See that nothing is left."""
        for name, place in self._places.items():
            if place.attempts.busy:
                raise Broken(f"{name} has {len(place.attempts)} attempts that were never reported", name)

    def _touch(self, attempts: Attempts, now: float) -> Attempts:
        if attempts.name not in self._touched:
            attempts.begin(now)
            self._touched[attempts.name] = attempts
        return attempts

    def _look(self, said: list[Revoked]) -> None:
        """See that who has something to do or to end is at it, and that who has nothing left says so."""
        for attempts in self._touched.values():
            attempts.check()
        self._touched.clear()
        for place in self._places.values():
            if place.work is not None and not place.work.attempts.busy:
                place.work = None
        if self._awaited or said:
            over = []
            for answer, names in self._awaited:
                names -= {name for name in names if not self._is_busy(name)}
                if not names:
                    over.append(answer)
            self._awaited = [(answer, names) for answer, names in self._awaited if names]
            for answer in said:
                if answer not in over:
                    raise Broken(f"{answer.grant_id} is said to be over, and is not", *answer.resources)
                over.remove(answer)
            if over:
                raise Broken(f"{over[0].grant_id} is over, and nobody says so", *over[0].resources)

    def _is_busy(self, name: ResourceId) -> bool:
        return name in self._places and self._places[name].attempts.busy

    # What it is told

    def _told(self, event: HostEvent, now: float, actions: Sequence[HostAction]) -> None:
        if type(event) is Submit:
            self._submitted(event, now, actions)
        elif type(event) is Cancel or type(event) is TakeBack:
            place = self._places.get(event.resource_id)
            if place is not None and place.attempts.busy and place.attempts.job == event.job:
                self._touch(place.attempts, now).told(event)
        elif type(event) is Hold:
            self._hold(event, actions)
        elif type(event) is Revoke:
            self._revoke(event, now)
        elif type(event) is GrantChecked:
            self._checked(event, now)
        elif type(event) is GrantsAhead:
            epoch, number = event.newest
            self._ahead[epoch] = max(self._ahead.get(epoch, 0), number)
        elif type(event) is OpenJob:
            self._end_job(event.job, now)
            self._jobs[event.job] = event
            self._jobs_opened += 1
            self._numbers[event.job] = self._jobs_opened
        elif type(event) is EndJob:
            self._end_job(event.job, now)
        elif type(event) is Stop:
            self._is_stopping = True
            self._close(self._places, now)
        elif type(event) is Called and isinstance(event.body, RemoveResources) and not _is_refused(actions):
            self._close(event.body.resource_ids, now)

    def _submitted(self, event: Submit, now: float, actions: Sequence[HostAction]) -> None:
        here = tuple(name for name in event.resources if name in self._places)
        why = self._why_not(event, here)
        if not why:
            in_the_way, is_older = self._in_the_way(here, (event.job, event.grant_id), here)
            why = f"{in_the_way} works there" if in_the_way else ""
            if is_older:
                _see_asked(actions, event.grant_id)
        in_use = not why
        why = why or self._why_not_there(event)
        keys = {(one.task_id, one.attempt) for one in event.submissions}
        refused = [
            outcome
            for action in actions
            if type(action) is Finished
            for outcome in action.outcomes
            if (outcome.task_id, outcome.attempt) in keys and is_refusal(outcome)
        ]
        about = [f"task {one.task_id} of {event.job}" for one in event.submissions[:1]]
        if why and not refused:
            raise Broken(f"{event.job} may use {here} under {event.grant_id}, though {why}", *about, *here)
        if refused and not why:
            said = refused[0].error.message if refused[0].error is not None else ""
            raise Broken(f"{event.job} may not use {here} under {event.grant_id}: {said}", *about, *here)
        if not in_use:
            return
        first = self._places[here[0]]
        if not why and event.submissions:
            job = self._jobs[event.job]
            self._touch(first.attempts, now).assign(event, job.fate, job.stage)
        if first.work is None:
            doing = _Work(first.attempts, here)
            for name in here:
                self._places[name].work = doing
                self._places[name].holder = None
                self._use(name, event.grant_id, self._numbers[event.job])

    def _why_not(self, event: Submit, here: Sequence[ResourceId]) -> str:
        """Return why a submit must be refused, or "" if nothing but other work may be in its way."""
        if self._is_stopping or event.job not in self._jobs:
            return "the RIF stops, or does not know the job"
        first = event.resources[0]
        doing = self._places[first].work if first in self._places else None
        if doing is not None and doing.attempts.busy and not doing.attempts.ending:
            worker = doing.attempts
            if (worker.job, worker.grant_id, doing.names) == (event.job, event.grant_id, tuple(here)):
                return ""  # had anything changed that is in its way, it would be ending
        prefix = f"{first.partition('.')[0]}."
        missing = [name for name in event.resources if name.startswith(prefix) and name not in here]
        if missing:
            return f"{missing} is not there"
        for name in here:
            place = self._places[name]
            if place.removing:
                return f"{name} is being removed"
            if self._has_lapsed(place, event.grant_id):
                return f"{event.grant_id} has lapsed on {name}"
            holder, grant_id = place.holder or ("", NO_GRANT)
            if grant_id == event.grant_id and (name == first or holder != event.job):
                return f"{name} is held for a task elsewhere"
        return ""

    def _why_not_there(self, event: Submit) -> str:
        """Return why the worker itself must refuse a submit that it is given."""
        place = self._places[event.resources[0]]
        if event.resource_class and event.resource_class != place.resource.resource_class:
            return "it is of another class"
        if len(place.attempts) + len(event.submissions) > QUEUE_ITEMS_MAX:
            return "it has as many as it may have"
        return ""

    def _has_lapsed(self, place: _Place, grant_id: GrantId) -> bool:
        if self._ahead and grant_id[1] > self._ahead.get(grant_id[0], 0):
            return True  # it was never given
        if grant_id <= max(place.closed, place.before):
            return True
        above = [self._places[name].used for name in place.above if name in self._places]
        return grant_id < max(place.used, place.below, *above)

    def _in_the_way(
        self, names: Iterable[ResourceId], user: tuple[JobId, GrantId], taken: tuple[ResourceId, ...]
    ) -> tuple[str, bool]:
        """Return who works near these, or "", and whether one does under an older grant."""
        found, is_older = "", False
        for doing in self._works_near(names):
            worker = doing.attempts
            if (worker.job, worker.grant_id) == user and not worker.ending and doing.names == taken:
                continue
            found = f"{worker.job} under {worker.grant_id}"
            is_older = is_older or (worker.grant_id < user[1] and not worker.ending)
        return found, is_older

    def _works_near(self, names: Iterable[ResourceId]) -> list[_Work]:
        near = [self._places[name] for name in self._near(names)]
        return list({id(place.work): place.work for place in near if place.work is not None}.values())

    def _checked(self, event: GrantChecked, now: float) -> None:
        """What works under an older grant than one that was given is to end, or else who has made it up."""
        asked, name = event.asked, event.asked.resource_id
        place = self._places.get(name)
        if place is None:
            return
        if NO_GRANT < event.newest <= place.before:
            place.before = (event.newest[0], event.newest[1] - 1)
        if event.newest >= asked.grant_id:
            for doing in self._works_near((name,)):
                if doing.attempts.grant_id < asked.grant_id:
                    self._touch(doing.attempts, now).end(Reason.LOST)
            if asked.user:
                self._use(name, asked.grant_id, asked.user)
            return
        if (place.used, place.user) == (asked.grant_id, asked.user):
            place.used = event.newest
            for above in place.above & self._places.keys():
                if self._places[above].below == asked.grant_id:
                    children = [one.used for one in self._places.values() if above in one.above]
                    self._places[above].below = max(children)
        for job in [job for job, number in self._numbers.items() if number == asked.user]:
            self._end_job(job, now)
        if place.work is not None and place.work.attempts.grant_id > place.used:
            self._touch(place.work.attempts, now).end(Reason.LOST)

    def _near(self, names: Iterable[ResourceId]) -> list[ResourceId]:
        found: dict[ResourceId, None] = {}
        for name in names:
            above = self._places[name].above
            for other, place in self._places.items():
                if other == name or other in above or name in place.above:
                    found[other] = None
        return list(found)

    def _use(self, name: ResourceId, grant_id: GrantId, user: int) -> None:
        place = self._places[name]
        if grant_id < place.used:
            return
        self._newest = max(self._newest, grant_id)
        place.used, place.user = grant_id, user
        for above in place.above & self._places.keys():
            self._places[above].below = max(self._places[above].below, grant_id)

    def _hold(self, event: Hold, actions: Sequence[HostAction]) -> None:
        if event.job not in self._jobs:
            return
        for name in event.resources:
            place = self._places.get(name)
            if place is None or place.removing or self._has_lapsed(place, event.grant_id):
                continue
            if self._in_the_way((name,), (event.job, event.grant_id), (name,))[1]:
                _see_asked(actions, event.grant_id)
                continue
            self._use(name, event.grant_id, self._numbers[event.job])
            place.holder = event.job, event.grant_id

    def _revoke(self, event: Revoke, now: float) -> None:
        self._newest = max(self._newest, event.grant_id)
        waiting = set()
        for name in event.resources:
            place = self._places.get(name)
            if place is None:
                continue
            place.closed = max(place.closed, event.grant_id)
            if place.holder is not None and place.holder[1] <= event.grant_id:
                place.holder = None
            if place.work is not None and place.work.attempts.grant_id <= event.grant_id:
                self._touch(place.work.attempts, now).end(Reason.LOST)
                waiting.add(place.work.attempts.name)
        self._awaited.append((Revoked(event.grant_id, event.resources), waiting))

    def _end_job(self, job: JobId, now: float) -> None:
        if self._jobs.pop(job, None) is None:
            return
        del self._numbers[job]
        for place in self._places.values():
            if place.work is not None and place.work.attempts.job == job:
                self._touch(place.work.attempts, now).end(Reason.CANCELLED)
            if place.holder is not None and place.holder[0] == job:
                place.holder = None

    # Resources

    def _add(self, resource: Resource) -> None:
        above: set[ResourceId] = set()
        for parent in resource.parents:
            above |= {parent, *(self._places[parent].above if parent in self._places else ())}
        name = resource.resource_id
        self._places[name] = _Place(resource, frozenset(above), self._newest, Attempts(name))

    def _close(self, names: Iterable[ResourceId], now: float) -> None:
        for name in names:
            place = self._places[name]
            if not place.removing:
                place.removing = True
                if place.work is not None:
                    self._touch(place.work.attempts, now).end(Reason.LOST)

    def _remove(self, name: ResourceId) -> None:
        place = self._places.pop(name)
        for other in self._places.values():
            if name in other.above:
                other.closed = max(other.closed, place.used)
        for attempts in (place.attempts, place.work.attempts if place.work is not None else place.attempts):
            if attempts.busy:
                raise Broken(f"{name} is removed, and {attempts.name} has {len(attempts)} attempts", name)


def _see_asked(actions: Sequence[HostAction], grant_id: GrantId) -> None:
    """See that it is asked whether a grant was given that would overtake an older one."""
    if not any(type(action) is CheckGrant and action.grant_id == grant_id for action in actions):
        raise Broken(f"{grant_id} would overtake what is at work, and nobody asks whether it was given")


def _is_refused(actions: Sequence[HostAction]) -> bool:
    """Whether a call was refused, so that nothing has changed."""
    return any(type(action) is ReplyError for action in actions)
