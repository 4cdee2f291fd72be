"""A co-allocation service with the requests that it runs: one machine for its shell (COA-3 to COA-7).

A stage of a request goes to a service below that can hold it, else its own stages are looked at, and what is
left is run from here.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from itertools import islice
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.coallocation.agents.service import (
    OF_PARTS,
    PARENT,
    CoallocationService,
    DropPeer,
    ParentLinked,
    PeerGone,
    PeerSaid,
    ServiceAction,
    ServiceEvent,
    SiteOffered,
    ToPeer,
)
from gspc_trio.components.coallocation.agents.words import (
    AttachRequest,
    CancelParts,
    CancelRequest,
    CoJobEntry,
    JobReport,
    JobsEnded,
    PartsDone,
    PartsGo,
    RegisterService,
    RequestDetails,
    RequestDone,
    RequestEntry,
    RequestsShown,
    RequestTaken,
    ServiceDetails,
    SiteOffer,
    SubmitRequest,
)
from gspc_trio.components.coallocation.flow import CoJobState
from gspc_trio.components.coallocation.jobs import CoJob
from gspc_trio.components.coallocation.journal import (
    CoallocationRecord,
    JobBegun,
    JobNoted,
    RequestClosed,
    RequestNoted,
    RequestNotWanted,
    StageEnded,
    StageGiven,
)
from gspc_trio.components.coallocation.language import JobOrder
from gspc_trio.components.coallocation.running import (
    BeginRequest,
    GivenStage,
    PlacedSaid,
    PlaceJob,
    RequestCancelled,
    RequestEvent,
    RunningRequest,
    StageBack,
    StageLost,
    StageTold,
    TellAsker,
    TellBelow,
    UnplaceJob,
)
from gspc_trio.components.coallocation.stages import given_stages
from gspc_trio.components.coallocation.tree import Request, stages_of_jobs
from gspc_trio.core.machine import IllegalEvent, MachineBase, Tick, handles

KEPT_REQUESTS = 100
"""So many requests that are over can still be asked for."""

SHOWN_MAX = 20
"""So many requests people look at."""

TEXT_MAX = 200
"""Of a longer request the beginning is shown."""

PARENT_BACK_S = 30.0
"""A stage of a service with a journal goes on for so long without that service; which waits longer."""

_OF_JOBS = (PartsGo, PartsDone)

_HERE = "="
"""Begins what the service calls a request that runs here, beside the names of others."""


class RequestRead(Struct, frozen=True):
    """A client, or the service above, has submitted a request, which was read.

    Attributes:
        who: who has.
        told: what.
        tree: of its text.
        jobs: its jobs.
        order: which of them wait for which.
    """

    who: str
    told: SubmitRequest
    tree: Request
    jobs: tuple[CoJob, ...]
    order: JobOrder


class RequestRestored(Struct, frozen=True):
    """A request of the journal goes on.

    Attributes:
        request_id: of it.
        read: what was submitted, read; by nobody who is there.
        begun: number of a job that was started -> how often.
        reports: how jobs have ended.
        stages: that services below have.
        is_closed: it was over: who has not heard of its end may ask for that.
        is_cancelled: it was cancelled.
    """

    request_id: str
    read: RequestRead
    begun: Mapping[int, int]
    reports: tuple[JobReport, ...]
    stages: tuple[GivenStage, ...] = ()
    is_closed: bool = False
    is_cancelled: bool = False


class NoteRecords(Struct, frozen=True):
    """Note this in the journal, before anything that is decided after it is done."""

    records: tuple[CoallocationRecord, ...]


class RequestStopped(Struct, frozen=True):
    """Anyone cancels a request by its id."""

    request_id: str


class RequestOver(Struct, frozen=True):
    """Nothing of a request runs any more."""

    request_id: str


HostEvent: TypeAlias = ServiceEvent | RequestRead | RequestRestored | RequestStopped
HostAction: TypeAlias = NoteRecords | ToPeer | DropPeer | RequestOver

NOBODY = "nobody: "
"""Begins the name of who has asked for a request that came back, until its client comes back too."""

_UNKNOWN = "its service has ended while it ran: how it ended is not known, and it has no attempts left"


class _Kept(Struct):
    """A request, who asked for it, and what it says; until when the service above, which is away, may come
    back, if it outlives that."""

    who: str
    running: RunningRequest
    text: str
    tree: Request
    outlives: bool = False
    until_s: float | None = None
    stages: list[tuple[int, ...]] | None = None


class CoallocationHost(MachineBase[HostEvent, HostAction]):
    """A service and its requests.

    Args:
        name: of the service, see :class:`CoallocationService`.
        instance: of its process.
        keeps: there is a journal of what clients ask for.
        taken: how many requests were taken before, as the journal says.

    Attributes:
        service: its place in the tree, and what is placed.
        requests: id -> request, of those that run.
    """

    noun = "a co-allocation service with its requests"

    def __init__(self, name: str, instance: str, keeps: bool = False, taken: int = 0) -> None:
        super().__init__()
        self.keeps = keeps
        self._records: list[CoallocationRecord] = []
        self.service: CoallocationService = CoallocationService(name, instance)
        self.requests: dict[str, _Kept] = {}
        self._by_asker: dict[tuple[str, str], str] = {}
        self._given: dict[tuple[str, str], str] = {}
        self._over: deque[tuple[str, _Kept]] = deque(maxlen=KEPT_REQUESTS)
        self._numbers = taken

    def deadline(self) -> float | None:
        """Return when the service or a request wants a tick."""
        soonest_s = self.service.deadline()
        for kept in self.requests.values():
            for due_s in (kept.running.deadline(), kept.until_s):
                if due_s is not None and (soonest_s is None or due_s < soonest_s):
                    soonest_s = due_s
        return soonest_s

    def check(self) -> None:
        """Assert that what runs here is what requests have placed."""
        self.service.check()
        placed = {key for key in self.service.allocations if key[0].startswith(_HERE)}
        wanted = set()
        for request_id, kept in self.requests.items():
            kept.running.check()
            assert not kept.running.is_over, f"{request_id} is over, and is kept"
            wanted |= {
                (_HERE + request_id, f"{number}.{here.attempt}") for number, here in kept.running.here.items()
            }
        assert placed == wanted, f"placed are {sorted(placed)}, and wanted {sorted(wanted)}"
        assert set(self._by_asker.values()) == set(self.requests)

    # What anyone may ask

    def entries(self) -> tuple[RequestEntry, ...]:
        """Return its requests, oldest first; of those that are over the last ones."""
        return tuple(_entry(*one) for one in (*self._over, *self.requests.items()))

    def details(self, request_id: str, most: int | None = None) -> RequestDetails | None:
        """Return a request and its jobs, of many the first ones; None if there is none."""
        kept = self._find(request_id)
        if kept is None:
            return None
        running = kept.running
        if kept.stages is None:
            kept.stages = stages_of_jobs(kept.tree)
        jobs = []
        for job, state, stages in islice(
            zip(running.jobs, running.flow.states, kept.stages, strict=True), most
        ):
            report = running.reports.get(job.number)
            reason = report.reason if report is not None else ""
            waits = running.order.waits(job.number)
            sites = self._sites(request_id, running, job)
            jobs.append(CoJobEntry(job.number, job.name, state, reason, waits, sites, stages))
        return RequestDetails(_entry(request_id, kept), tuple(jobs))

    def shown(self, jobs: int) -> RequestsShown:
        """Return what people look at, with so many jobs in all."""
        ids = [*reversed(self.requests), *(request_id for request_id, _ in reversed(self._over))]
        found: list[RequestDetails] = []
        while ids and jobs > 0 and len(found) < SHOWN_MAX:
            details = self.details(ids.pop(0), jobs)
            assert details is not None
            jobs -= len(details.jobs)
            found.append(details)
        return RequestsShown(self.service.name, tuple(found), len(ids))

    def is_over(self, request_id: str) -> bool | None:
        """Return whether a request is over; None if there is none."""
        kept = self._find(request_id)
        return None if kept is None else kept.running.is_over

    def about(self) -> ServiceDetails:
        """Return what it is."""
        service, children = self.service, tuple(sorted(self.service.children))
        offers = tuple(service.offers())
        return ServiceDetails(service.name, service.above, children, offers, len(self.requests))

    def _find(self, request_id: str) -> _Kept | None:
        return self.requests.get(request_id) or dict(self._over).get(request_id)

    def _sites(self, request_id: str, running: RunningRequest, job: CoJob) -> tuple[str, ...]:
        here = running.here.get(job.number)
        if here is None:
            child = running.child_of(job.number)
            return (child,) if child and job.number not in running.reports else ()
        placed = self.service.allocations[_HERE + request_id, f"{job.number}.{here.attempt}"].placed
        return tuple("/".join(path) for path in placed)

    # Events

    def _serve(self, event: ServiceEvent) -> None:
        """Give something to the service; what it says to requests that run here stays here."""
        told: list[ServiceAction] = []
        for action in self.service.handle(event, self.now):
            if type(action) is ToPeer and not action.who.startswith(_HERE):
                self.actions.append(action)
            else:
                told.append(action)
        for action in told:
            if isinstance(action, DropPeer):
                self.actions.append(action)
                self._lose(action.who, action.reason, is_silent=True)
            elif isinstance(action.message, _OF_JOBS):
                self._feed(action.who.removeprefix(_HERE), PlacedSaid(action.message))

    def _look_at_time(self) -> None:
        """Give up who was silent for too long, with the requests that came from there, before anything else.

        So a service that was suspended starts nothing of these.
        """
        due_s = self.service.deadline()
        if due_s is not None and self.now >= due_s:
            self._serve(Tick())
        for request_id, kept in list(self.requests.items()) if self._is_left else ():
            if kept.until_s is not None and self.now >= kept.until_s:
                kept.until_s = None
                self._feed(request_id, RequestCancelled())

    @handles(Tick)
    def _tick(self, event: Tick) -> None:
        self._serve(event)
        self._look_at_time()
        for request_id, kept in list(self.requests.items()):
            due_s = kept.running.deadline()
            if due_s is not None and self.now >= due_s:
                self._feed(request_id, event)

    @handles(RequestRead)
    def _read(self, event: RequestRead) -> None:
        self._look_at_time()
        if event.who == PARENT and not self.service.is_linked:
            return
        key = event.who, event.told.request
        if key in self._by_asker:
            refused = RequestDone(event.told.request, f"there is a request {event.told.request} already")
            self.actions.append(ToPeer(event.who, refused))
            return
        self._numbers += 1
        request_id = f"{self.service.name}-{self._numbers}"
        is_kept = self.keeps and event.who != PARENT
        stages = tuple(given_stages(event.tree, event.told, event.jobs, self._below(), request_id, is_kept))
        if is_kept:
            self._records.append(RequestNoted(request_id, event.told))
            self._records += [StageGiven(request_id, stage) for stage in stages]
        self._add(request_id, event, stages)
        self.actions.append(ToPeer(event.who, RequestTaken(event.told.request, request_id, is_kept)))
        self._feed(request_id, BeginRequest())

    def _add(self, request_id: str, read: RequestRead, stages: tuple[GivenStage, ...] = ()) -> None:
        running = RunningRequest(read.told, read.jobs, read.order, stages)
        for stage in stages:
            self._given[stage.child, stage.told.request] = request_id
        outlives = read.told.outlives and read.who == PARENT
        text = read.told.text[:TEXT_MAX]
        self.requests[request_id] = _Kept(read.who, running, text, read.tree, outlives)
        self._by_asker[read.who, read.told.request] = request_id

    @handles(RequestRestored)
    def _restore(self, event: RequestRestored) -> None:
        self._look_at_time()
        if event.request_id in self.requests:
            raise IllegalEvent(f"there is a request {event.request_id} already")
        ended = {report.number for report in event.reports}
        begun = {number: times for number, times in sorted(event.begun.items()) if number not in ended}
        lost = [number for number, times in begun.items() if times >= event.read.jobs[number - 1].attempts]
        reports = [JobReport(number, CoJobState.FAILED, _UNKNOWN) for number in lost]
        self._records += [JobNoted(event.request_id, report) for report in reports]
        self._add(event.request_id, event.read, event.stages)
        self._feed(event.request_id, BeginRequest((*event.reports, *reports), True, begun), notes=False)
        if event.is_closed:
            self._records = [one for one in self._records if one != RequestClosed(event.request_id)]
        if event.is_cancelled:
            self._feed(event.request_id, RequestCancelled())

    def _attach(self, who: str, asked: AttachRequest) -> None:
        """A client comes back to a request that nobody waits for."""
        kept = self._find(asked.request_id)
        before = kept.who if kept is not None else ""
        if kept is None or kept.running.request != asked.request or not before.startswith(NOBODY):
            reason = f"request {asked.request_id} is not there any more"
            self.actions.append(ToPeer(who, RequestDone(asked.request, reason)))
            return
        self.actions.append(ToPeer(who, RequestTaken(asked.request, asked.request_id, True)))
        self.actions.append(ToPeer(who, JobsEnded(asked.request, kept.running.told_reports())))
        if kept.running.is_over:
            self.actions.append(ToPeer(who, RequestDone(asked.request)))
        else:
            del self._by_asker[before, asked.request]
            self._by_asker[who, asked.request] = asked.request_id
            kept.who = who

    def _attach_stage(self, asked: AttachRequest) -> None:
        """The service above is back, and wants to hear of a stage that it has given to this one."""
        running = [kept for kept in self.requests.values() if kept.outlives]
        all_known = (*running, *(kept for _, kept in reversed(self._over) if kept.outlives))
        known = next((kept for kept in all_known if kept.running.request == asked.request), None)
        if known is None:
            error = f"{self.service.name} does not have it any more"
            self.actions.append(ToPeer(PARENT, RequestDone(asked.request, error)))
            return
        known.until_s = None
        self.actions.append(ToPeer(PARENT, JobsEnded(asked.request, known.running.told_reports())))
        if known.running.is_over:
            self.actions.append(ToPeer(PARENT, RequestDone(asked.request)))

    def settle(self) -> None:
        """Note before all else what was decided."""
        if self._records:
            self.actions.insert(0, NoteRecords(tuple(self._records)))
            self._records = []

    @handles(RequestStopped)
    def _stop(self, event: RequestStopped) -> None:
        self._look_at_time()
        self._feed(event.request_id, RequestCancelled())

    @handles(PeerSaid)
    def _said(self, event: PeerSaid) -> None:
        self._look_at_time()
        message = event.message
        if isinstance(message, OF_PARTS):
            self._serve(event)
        elif isinstance(message, AttachRequest) and event.who == PARENT:
            if self.service.is_linked:
                self._attach_stage(message)
        elif isinstance(message, AttachRequest):
            self._attach(event.who, message)
        elif isinstance(message, CancelRequest):
            request_id = self._by_asker.get((event.who, message.request))
            if request_id is not None:
                self._feed(request_id, RequestCancelled())
        elif isinstance(message, JobsEnded | RequestDone):
            request_id = self._given.get((event.who, message.request))
            if request_id is not None:
                self._feed(request_id, StageTold(message))
        elif not isinstance(message, SubmitRequest | RequestTaken):
            self._serve(event)
            if isinstance(message, RegisterService) and event.who in self.service.children:
                for request_id in list(self.requests):
                    self._feed(request_id, StageBack(event.who))

    @handles(ParentLinked, SiteOffered)
    def _linked(self, event: ParentLinked | SiteOffered) -> None:
        self._look_at_time()
        self._serve(event)

    @handles(PeerGone)
    def _gone(self, event: PeerGone) -> None:
        self._look_at_time()
        self._serve(event)
        self._lose(event.who, event.reason)

    def _lose(self, who: str, reason: str, is_silent: bool = False) -> None:
        for request_id in list(self.requests):
            self._feed(request_id, StageLost(who, reason, is_silent))
        for request_id in [one for key, one in self._by_asker.items() if key[0] == who]:
            kept = self.requests[request_id]
            if kept.outlives:
                kept.until_s = self.now + PARENT_BACK_S if kept.until_s is None else kept.until_s
            else:
                self._feed(request_id, RequestCancelled())

    @property
    def _is_left(self) -> bool:
        """Whether the service above is away."""
        return any(kept.until_s is not None for kept in self.requests.values())

    def _feed(self, request_id: str, event: RequestEvent, notes: bool = True) -> None:
        kept = self.requests.get(request_id)
        if kept is None:
            return
        here = _HERE + request_id
        is_noted = self.keeps and kept.who != PARENT
        if is_noted and isinstance(event, PlacedSaid) and isinstance(event.said, PartsGo):
            self._records.append(JobBegun(request_id, int(event.said.request.split(".")[0])))
        elif is_noted and isinstance(event, RequestCancelled) and not kept.running.is_cancelled:
            self._records.append(RequestNotWanted(request_id))
        for action in kept.running.handle(event, self.now):
            if isinstance(action, PlaceJob):
                self._serve(PeerSaid(here, action.wanted))
            elif isinstance(action, UnplaceJob):
                self._serve(PeerSaid(here, CancelParts(action.placed)))
            elif isinstance(action, TellBelow):
                self.actions.append(ToPeer(action.child, action.said))
            elif isinstance(action, TellAsker):
                self.actions.append(ToPeer(kept.who, action.said))
        ended, kept.running.ended = kept.running.ended, []
        over, kept.running.ended_stages = kept.running.ended_stages, []
        if is_noted and notes:
            self._records += [JobNoted(request_id, report) for report in ended]
            self._records += [StageEnded(request_id, name) for name in over]
        if kept.running.is_over and self.requests.pop(request_id, None) is not None:
            del self._by_asker[kept.who, kept.running.request]
            self.service.forget(here)
            self._given = {key: one for key, one in self._given.items() if one != request_id}
            self._over.append((request_id, kept))
            if is_noted:
                self._records.append(RequestClosed(request_id))
            self.actions.append(RequestOver(request_id))

    def _below(self) -> dict[str, list[SiteOffer]]:
        """Return what each service below has."""
        return {
            name: [offer for offer in child.registered.offers if not child.doubled.intersection(offer.path)]
            for name, child in self.service.children.items()
        }


def _entry(request_id: str, kept: _Kept) -> RequestEntry:
    running = kept.running
    states = Counter(str(state) for state in running.flow.states)
    return RequestEntry(request_id, kept.who, kept.text, len(running.jobs), dict(states), running.is_over)
