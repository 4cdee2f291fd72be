"""The jobs of a run-time system: each has one name, its weight, one that goes on for it, and an end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define

from gspc_trio.components.rm.events import Claimed, JobGone, JobJoined, JobWeighed
from gspc_trio.components.rm.messages import Interrupt
from gspc_trio.components.rts import events
from gspc_trio.components.rts.actions import (
    AcceptJob,
    Answer,
    CloseJobAt,
    RefuseJob,
    RtsAction,
    TellJobs,
    TellRm,
    Weighed,
)
from gspc_trio.components.rts.events import RtsEvent
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import NewWeight
from gspc_trio.core.ids import JobId
from gspc_trio.records.facts import JobChanged
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.checkers.due import Due
from gspc_trio.testing.checkers.rifs import Rifs, sends_away


@define(eq=False)
class _Job:
    """A job that is registered.

    Attributes:
        link: of its job server; None: that is gone, or nobody has heard of it yet.
        weight: as was asked for last; ``said``: as its job server has it; ``managed``: as the manager has it.
        grace_s: for how long it is awaited.
        until_s: when it is given up.
        successor: who goes on for it, or "".
    """

    link: int | None = None
    weight: float | None = None
    said: float | None = None
    managed: float | None = None
    grace_s: float = 0.0
    until_s: float | None = None
    successor: JobId = ""


class Registry:
    """The jobs of one run-time system.

    Args:
        machine: of the run-time system.
        rifs: what is known of its RIFs.
        named: all jobs that run-time systems that know of one another have ever named.
    """

    def __init__(self, machine: Rts, rifs: Rifs, named: set[JobId]) -> None:
        self._limits = machine.limits
        self._rifs = rifs
        self._named = named
        self._jobs: dict[JobId, _Job] = {}
        self._managed: set[JobId] = set()
        self.due: Due = Due()

    def saw(self, event: RtsEvent, now: float, actions: Sequence[RtsAction]) -> None:
        """The run-time system took an event.

        Raises:
            Broken: a job is not what it must be now.
        """
        self._check_refused(event, actions)
        ended = {action.job for action in actions if type(action) is JobChanged and action.state != "running"}
        if type(event) is events.JobServerGone:
            self._gone(event, now, actions, ended)
        for action in actions:
            if type(action) is AcceptJob:
                assert isinstance(event, events.JobConnected), "accepted, and has not asked"
                self._accepted(event, action)
        for action in actions:
            self._take(action)
        if type(event) is events.WeightAsked and any(
            type(action) is Answer and isinstance(action.result, Weighed) for action in actions
        ):
            self._jobs[event.job].weight = event.weight
        elif type(event) is events.RifConnected and event.hello.claims is not None:
            self._check_claims(event, actions)
        for job in ended:
            self._jobs.pop(job, None)
            self._check_closed(job, actions)
        for job, entry in self._jobs.items():
            if entry.successor and entry.successor not in self._jobs:
                raise Broken(f"{entry.successor}, which went on for {job}, is over, and {job} is not")
            if entry.link is not None and not entry.weight == entry.said == entry.managed:
                what = f"{job} is to have the weight {entry.weight}, has been told {entry.said}"
                raise Broken(f"{what}, and the resource manager gives it {entry.managed}")
        if self._jobs.keys() != self._managed:
            raise Broken(f"there are {set(self._jobs)}; the resource manager has {self._managed}")
        self.due.set(self._things())

    def _things(self) -> Iterator[tuple[float, str]]:
        for job, entry in self._jobs.items():
            if entry.until_s is not None and not entry.successor:
                yield entry.until_s, f"{job} was awaited for long enough"

    def _check_closed(self, job: JobId, actions: Sequence[RtsAction]) -> None:
        """All RIFs that can be heard are told that a job is over."""
        told = {
            link
            for action in actions
            if type(action) is CloseJobAt and action.job == job
            for link in action.links
        }
        for host in self._rifs:
            if host.link is not None and host.is_up and host.link not in told:
                raise Broken(f"{job} is over, and {host.rif_id} is not told", host.rif_id)

    def _check_refused(self, event: RtsEvent, actions: Sequence[RtsAction]) -> None:
        """A job for which another goes on cannot come back."""
        if type(event) is not events.JobConnected or not event.wish.job:
            return
        job = event.wish.job
        entry = self._jobs.get(job)
        if entry is not None and entry.successor and not any(type(action) is RefuseJob for action in actions):
            raise Broken(f"{job} is taken back, and {entry.successor} goes on for it")

    def _gone(
        self, event: events.JobServerGone, now: float, actions: Sequence[RtsAction], ended: set[JobId]
    ) -> None:
        """The connection of a job is over: it is awaited if it may be, and ends if not."""
        job, entry = event.job, self._jobs.get(event.job)
        if entry is None or entry.link is None or (event.link and event.link != entry.link):
            if job in ended and (entry is None or entry.successor):
                raise Broken(f"{job} is ended by a connection that is its own no more")
            return
        grace_s = max(entry.grace_s, self._limits.grace_s if event.silent else 0.0)
        is_awaited = grace_s > 0 and event.left is None and not self._rifs.stopping
        if is_awaited == (job in ended):
            raise Broken(f"{job} is gone, and is {'not ' if is_awaited else ''}awaited")
        entry.link = None
        if is_awaited:
            entry.until_s = now + grace_s
            if not any(
                type(action) is TellRm and type(action.event) is Interrupt and action.event.job == job
                for action in actions
            ):
                raise Broken(f"{job} is gone, and gets grants still")

    def _take(self, action: RtsAction) -> None:
        if type(action) is JobChanged and action.state == "running":
            self._jobs.setdefault(action.job, _Job())
        elif type(action) is TellJobs and isinstance(action.message, NewWeight):
            for job in action.jobs:
                self._jobs[job].said = action.message.weight
        elif type(action) is TellRm:
            told = action.event
            if isinstance(told, JobJoined | JobWeighed):
                self._managed.add(told.job)
                self._jobs.setdefault(told.job, _Job()).managed = told.weight
            elif isinstance(told, JobGone):
                self._managed.discard(told.job)

    def _accepted(self, event: events.JobConnected, accepted: AcceptJob) -> None:
        wish, job = event.wish, accepted.job
        if not accepted.back and (job in self._named or job in self._jobs):
            raise Broken(f"{job} is the name of two jobs")
        if self._limits.grace_s:
            self._named.add(job)
        entry = self._jobs.setdefault(job, _Job())
        if entry.weight is None:
            entry.weight = wish.weight
        entry.link, entry.said, entry.grace_s, entry.until_s = event.link, wish.weight, wish.grace_s, None
        orphan = self._jobs.get(accepted.adopted)
        if orphan is not None:
            if orphan.successor and orphan.successor != job:
                raise Broken(f"{job} goes on for {accepted.adopted}, and so does {orphan.successor}")
            orphan.successor, orphan.link, orphan.until_s = job, None, None

    def _check_claims(self, event: events.RifConnected, actions: Sequence[RtsAction]) -> None:
        """What is in use at a RIF of which nobody knew is held, unless its job says so itself."""
        host = self._rifs.get(event.hello.rif_id)
        if host is None or any(sends_away(action, event.link) for action in actions):
            return
        added = any(type(a) is TellRm and getattr(a.event, "resources", ()) for a in actions)
        held = {a.event.job for a in actions if type(a) is TellRm and isinstance(a.event, Claimed)}
        for claim in event.hello.claims or () if added else ():
            entry = self._jobs.get(claim.job)
            known = entry is not None and (entry.link is not None or entry.said is not None)
            if not known and host.there.intersection(claim.resources) and claim.job not in held:
                raise Broken(
                    f"{claim.job} works at {event.hello.rif_id}, and holds nothing there", event.hello.rif_id
                )
