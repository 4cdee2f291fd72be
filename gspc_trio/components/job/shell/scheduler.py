"""The shell of a job's scheduler: one connection to the RTS, one to each RIF, and who gets which message.

Events come from the connections into the job's inbox; the scheduler's actions go out by
:meth:`SchedulerRoutes.send`. Nothing is decided here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Protocol, TypeAlias

import trio
from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import (
    Claims,
    GivenUp,
    HostEvacuated,
    HostRestricted,
    HostRests,
    Reclaim,
    ResourcesLost,
    ResourcesUp,
    Withheld,
)
from gspc_trio.components.job.shell.files import JobFiles, take_message
from gspc_trio.components.rif.messages import Hold, Orphans, WorkBack
from gspc_trio.components.rm.messages import Demand, Grant, Interrupt, Lapsed, Recall, Refuse, Release
from gspc_trio.components.rts.messages import (
    Await,
    Evacuate,
    JobEnd,
    JobRegistered,
    LeaveJob,
    Lend,
    NewWeight,
    RegisterJob,
    Rest,
    Restrict,
    RifGone,
    RifUp,
)
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.contact import RETRY_S, RtsContact
from gspc_trio.components.worker.messages import (
    AttemptStatus,
    Begun,
    Cancel,
    DefineCode,
    Finished,
    FromTask,
    GetAttempt,
    OpenJob,
    Submit,
    TakeBack,
)
from gspc_trio.core.demand import DemandWanted, GroupRefused, TaskDemand
from gspc_trio.core.held import describe_held
from gspc_trio.core.ids import Attempt, GrantId, JobId, ResourceId, RifId, TaskId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, TaskError
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, RemoteError, drop_offender
from gspc_trio.nursery.scopes.drive import Put
from gspc_trio.protocol.envelope import EncodeError
from gspc_trio.records.facts import Record, ResourceChanged

log: logging.Logger = logging.getLogger(__name__)

RECONNECT_FIRST_S = 0.1
RECONNECT_MAX_S = 2.0
"""Pauses between tries to reach a RIF that the RTS says is there."""

ASK_TIMEOUT_S = 3.0
"""How long a RIF may take to answer a question."""

SentTo: TypeAlias = Callable[[Sequence[ResourceId]], list[tuple[ResourceId, TaskId, Attempt]]]

_FROM_RTS = (Grant, Recall, Refuse, Lapsed, DemandWanted, GroupRefused)
_REPORTS = (Finished, Begun)
_TO_RTS = (Demand, Release, Interrupt, TaskDemand)


class Joined(Struct, eq=False):
    """A run-time system that a job has joined.

    Attributes:
        name: as the user calls it, "" for the only one.
        rts: the handle on it.
        peer: the connection of the job.
        joining: what the job has said of itself.
        registered: and the answer.
    """

    name: str
    rts: RunTimeSystem
    peer: Peer
    joining: RegisterJob
    registered: JobRegistered


class _RifLink(Struct, eq=False):
    """The connection to one RIF: what to send waits in ``unsent`` until it is there.

    ``lost_at`` is when a RIF that is awaited is given up; ``greeted`` whether it was ever reached; ``last``
    the number of the last submission of the job when something was last sent there; ``rests`` why nothing
    new is given out of its host, or "".
    """

    endpoint: RifUp
    scope: trio.CancelScope
    put: Put
    peer: Peer | None = None
    unsent: list[object] = field(default_factory=list)
    defined: dict[int, None] = field(default_factory=dict)
    lost_at: float | None = None
    greeted: bool = False
    last: int = 0
    rests: str = ""

    @property
    def is_up(self) -> bool:
        """Whether what is posted is sent: it is dropped if the connection is over and nobody has seen it."""
        return self.peer is not None and not self.peer.reason

    @property
    def resource_ids(self) -> tuple[ResourceId, ...]:
        """What its RIF has."""
        return tuple(resource.resource_id for resource in self.endpoint.resources)

    @property
    def prefix(self) -> str:
        """How the ids of its resources begin."""
        return f"{self.endpoint.rif_id}."

    def send(self, message: object, last: int) -> None:
        if self.peer is not None and self.is_up:
            self.last = last
            self.post(self.peer, message)
        else:
            self.unsent.append(message)

    def post(self, peer: Peer, message: object) -> None:
        """Send a message; tasks that are too large together go one by one, and one that is so alone fails."""
        try:
            peer.post(message)
        except EncodeError as error:
            if type(message) is not Submit:
                raise
            submissions = message.submissions
            if len(submissions) > 1:
                for submission in submissions:
                    self.post(peer, replace(message, submissions=(submission,)))
            else:
                why = TaskError(type(error).__name__, f"it cannot be sent: {error}")
                failed = Outcome(submissions[0].task_id, submissions[0].attempt, Reason.FAILED, error=why)
                self.put(Finished(message.job, message.resources[0], (failed,)))

    def withhold(self, withheld: Withheld) -> None:
        """Drop what was submitted and has not been sent: also what must not run twice may go elsewhere."""
        self.unsent = [
            message
            for message in self.unsent
            if type(message) is not Submit or not withheld.concerns(message.resources[0], message.grant_id)
        ]


class Nested(Protocol):
    """Takes what tasks say to the job server, as ``NestedHub`` does."""

    def take(self, peer: Peer, message: FromTask) -> None:
        """Take what a task says, by way of its RIF."""
        ...

    def forget(self, peer: Peer) -> None:
        """A RIF cannot be heard any more."""
        ...

    def restate(self, job: JobId) -> None:
        """Say again what the first job lends, to a run-time system that was started again."""
        ...


class SchedulerRoutes:
    """The connections of one job.

    Args:
        network: to reach the RIFs.
        rts: the connection to the RTS, on which the job is registered.
        opening: what each RIF is told first.
        code: returns entry ``code_id`` of the job's code table, encoded.
        put: takes an event for the job's machine, and who has said so if that is a RIF.
        hosts: filled with the host of each resource that was ever seen.
        nursery: in which the connections live.
        record: takes a record.
        sent_to: returns the attempts that are at some resources.
        files: of the job's host, for tasks that fetch or store some; None: there are none.
        orphans: told what a RIF says of the tasks of a job that was adopted, and (None) that it is gone.

    Attributes:
        nested: takes what tasks say to the job server.
    """

    explain: None = None
    """Its run-time system alone says why a task waits, ..."""

    statuses: None = None
    """... and how it is."""

    def __init__(
        self,
        network: Network,
        rts: Peer,
        opening: OpenJob,
        code: Callable[[int], bytes],
        put: Put,
        hosts: dict[ResourceId, str],
        nursery: trio.Nursery,
        record: Callable[[Record], None] = lambda _: None,
        sent_to: SentTo = lambda _: [],
        files: JobFiles | None = None,
        orphans: Callable[[RifId, Orphans | None], None] | None = None,
    ) -> None:
        self.nested: Nested | None = None
        self._orphans = orphans or (lambda _, __: None)
        self._record = record
        self._files = files
        self.sent_to = sent_to
        self.network = network
        self.rts: Peer = rts
        self.opening = opening
        self._hosts = hosts
        self._code = code
        self._put = put
        self._nursery = nursery
        self.grace_s: float = 0.0
        self._links: dict[RifId, _RifLink] = {}
        self._rif_of: dict[ResourceId, RifId] = {}
        self._ends: dict[RifId, float | None] = {}
        self._submitted = 0
        self._withheld: list[Withheld] = []

    @property
    def job(self) -> JobId:
        """The job these connections serve."""
        return self.opening.job

    def contact(
        self,
        joining: RegisterJob,
        join: Callable[[], AbstractAsyncContextManager[Peer]],
    ) -> RtsContact:
        """Return the means to stay in touch with the RTS, and with RIFs that cannot be heard for a while.

        Args:
            joining: what the job says of itself, also to an RTS that is back.
            join: opens a connection.
        """
        self._joining = joining
        self._contact = RtsContact(join, self._take_from_rts, self._rts_is_back, 0.0)
        return self._contact

    async def leave(self, adopted: JobId) -> None:
        """Tell the RTS that the job that was adopted is needed no more."""
        self._joining = replace(self._joining, adopts="")
        with suppress(PeerGone, RemoteError):  # should it come back, it will not be told of it
            await self.rts.call(LeaveJob(adopted))

    def _rts_is_back(self, _: Peer) -> None:
        """Have the job's machine say what it holds; until then nothing is said to the new RTS."""
        log.warning("job %s: the run-time system is back", self.job)
        self._put(Reclaim())

    def _take_from_rts(self, message: object) -> None:
        if isinstance(message, Lapsed):
            for link in self._links.values():
                if not link.is_up:
                    self._withhold(link, link.resource_ids, message.grant_ids)
        if isinstance(message, _FROM_RTS):
            self._put(message)
        elif isinstance(message, RifUp):
            self._rif_up(message)
        elif isinstance(message, RifGone):
            self._rif_gone(message)
        elif isinstance(message, Evacuate):
            self._evacuate(message)
        elif isinstance(message, Rest):
            self._rest(message)
        elif isinstance(message, Restrict):
            self._restrict(message)
        elif isinstance(message, Await):
            self.grace_s = self._contact.grace_s = message.grace_s
        elif isinstance(message, NewWeight):
            self._joining = replace(self._joining, weight=message.weight)
        elif not isinstance(message, JobRegistered):
            log.warning("job %s: the RTS said %s, which is not for jobs", self.job, type(message).__name__)

    async def ask(self, resource_id: ResourceId, question: GetAttempt) -> AttemptStatus | None:
        """Return what the RIF of a resource says of an attempt, None if there is no answer within a bound."""
        if (link := self._link_of(resource_id)) is not None and link.peer is not None:
            with suppress(PeerGone, RemoteError, trio.TooSlowError):
                answer = await link.peer.call(question, ASK_TIMEOUT_S)
                return answer if isinstance(answer, AttemptStatus) else None
        return None

    def post(self, message: Lend) -> None:
        """Tell the RTS, if it is there, how often cores are lent."""
        self.rts.post(message)

    def send(self, action: object) -> bool:
        """Send an action of the scheduler where it belongs; return False if it is not one that is sent."""
        if isinstance(action, Submit):
            self._submit(action)
        elif isinstance(action, _TO_RTS):
            self.rts.post(action)
        elif isinstance(action, Claims):
            self.rts = self._contact.peer
            self.rts.post(replace(self._joining, job=action.job, grants=action.grants))
            if self.nested is not None:
                self.nested.restate(self.job)
        elif isinstance(action, Cancel | TakeBack):
            self._send_to(action.resource_id, action)
        elif isinstance(action, GivenUp):
            self._withheld.remove(action.withheld)
        elif isinstance(action, Hold):
            for rif_id, resources in self._by_rif(action.resources).items():
                self._send(self._links[rif_id], Hold(action.job, action.grant_id, tuple(resources)))
        else:
            return False
        return True

    def _withhold(
        self, link: _RifLink, names: tuple[ResourceId, ...], grant_ids: tuple[GrantId, ...] = ()
    ) -> None:
        """Send nothing more of what was submitted there; the machine, which is told next that it is lost, may
        not know that yet, and still submit.
        """
        withheld = Withheld(names, link.last, grant_ids)
        link.withhold(withheld)
        self._withheld.append(withheld)
        self._put(withheld)

    def _submit(self, submit: Submit) -> None:
        self._submitted += len(submit.submissions)
        first, grant_id = submit.resources[0], submit.grant_id
        link = self._link_of(first)
        if link is None or any(withheld.concerns(first, grant_id) for withheld in self._withheld):
            return
        if len(submit.resources) > 1:
            held = describe_held([self._find(name) for name in submit.resources])
            told = tuple(replace(submission, held=held) for submission in submit.submissions)
            submit = replace(submit, submissions=told)
        for code_id in [submission.code_id for submission in submit.submissions]:
            if code_id not in link.defined:
                link.defined[code_id] = None
                self._send(link, DefineCode(self.job, code_id, self._code(code_id)))
        self._send(link, submit)

    def _send(self, link: _RifLink, message: object) -> None:
        link.send(message, self._submitted)

    def _find(self, resource_id: ResourceId) -> tuple[Resource, str]:
        """Return a resource and its host; no more than its id if its RIF is gone."""
        link = self._link_of(resource_id)
        if link is not None:
            for resource in link.endpoint.resources:
                if resource.resource_id == resource_id:
                    return resource, link.endpoint.host
        return Resource(resource_id, ""), self._hosts.get(resource_id, "")

    def _send_to(self, resource_id: ResourceId, message: object) -> None:
        if (link := self._link_of(resource_id)) is not None:
            self._send(link, message)

    def _link_of(self, resource_id: ResourceId) -> _RifLink | None:
        """Return the link to the resource's RIF; None if it is gone, which the scheduler is told, too."""
        return self._links.get(self._rif_of.get(resource_id, ""))

    def pass_over(self, count: int) -> None:
        """Count so many submissions of the job that go to another run-time system."""
        self._submitted += count

    def close(self, reason: str) -> None:
        """End the connections to all RIFs: the run-time system has gone for good."""
        for link in list(self._links.values()):
            self._drop(link, reason)

    async def leave_all(self, end: JobEnd) -> None:
        """Say goodbye to the run-time system, with how the job has ended."""
        await self.rts.call(LeaveJob(end=end))

    async def wait_back(self) -> None:
        """Wait until the run-time system is there again."""
        while True:
            if not self.rts.lost.is_set():
                return
            await trio.sleep(RETRY_S)

    def _by_rif(self, resources: Sequence[ResourceId]) -> dict[RifId, list[ResourceId]]:
        parts: dict[RifId, list[ResourceId]] = {}
        for resource_id in resources:
            rif_id = self._rif_of.get(resource_id)
            if rif_id in self._links:
                parts.setdefault(rif_id, []).append(resource_id)
        return parts

    def _rif_up(self, endpoint: RifUp) -> None:
        """A RIF is new, or has other resources than before."""
        link = self._links.get(endpoint.rif_id)
        if link is not None and link.endpoint.incarnation == endpoint.incarnation:
            self._change_resources(link, endpoint)
            return
        if link is not None:
            self._drop(link, "it was started again")
        link = _RifLink(endpoint, trio.CancelScope(), self._put)
        self._links[endpoint.rif_id] = link
        self._announce(endpoint)
        self._nursery.start_soon(self._keep_connected, link)

    def _announce(self, endpoint: RifUp) -> None:
        for resource in endpoint.resources:
            self._rif_of[resource.resource_id] = endpoint.rif_id
            self._hosts[resource.resource_id] = endpoint.host
            self._note(resource, endpoint.host, "added")
        left_s = endpoint.ends_in_s
        self._ends[endpoint.rif_id] = None if left_s is None else trio.current_time() + left_s
        self._put(ResourcesUp(endpoint.resources, self._ends[endpoint.rif_id]))

    def _note(self, resource: Resource, host: str, state: str) -> None:
        """Record for watchers what there is to run on."""
        what = resource.resource_id, resource.resource_class
        self._record(ResourceChanged(trio.current_time(), *what, state, host, resource.parents))

    def _change_resources(self, link: _RifLink, endpoint: RifUp) -> None:
        left = {resource.resource_id for resource in endpoint.resources}
        gone = tuple(r.resource_id for r in link.endpoint.resources if r.resource_id not in left)
        link.endpoint, link.rests = endpoint, ""  # the run-time system says next if it still rests
        if gone:
            for resource_id in gone:
                self._rif_of.pop(resource_id, None)
                self._record(ResourceChanged(trio.current_time(), resource_id, "", "removed", endpoint.host))
            self._withhold(link, gone)
            self._put(ResourcesLost(gone, "it was removed from the run-time system"))
        self._announce(endpoint)

    def _rif_gone(self, gone: RifGone) -> None:
        link = self._links.get(gone.rif_id)
        if link is None:
            self._orphans(gone.rif_id, None)
        elif link.endpoint.incarnation <= gone.incarnation:
            self._drop(link, gone.reason)

    def _evacuate(self, order: Evacuate) -> None:
        link = self._links.get(order.rif_id)
        if link is not None:
            why = f"host {link.endpoint.host} is evacuated: {order.reason}" if order.reason else ""
            self._put(HostEvacuated(link.endpoint.resources, why))

    def _rest(self, order: Rest) -> None:
        link = self._links.get(order.rif_id)
        if link is not None:
            link.rests = order.reason
            self._put(HostRests(link.endpoint.resources, order.reason))

    def _restrict(self, order: Restrict) -> None:
        link = self._links.get(order.rif_id)
        if link is not None and link.endpoint.resources:
            whom = f"no new tasks with {' or '.join(order.uses)}"
            why = f"host {link.endpoint.host} gets {whom}: {order.reason}" if order.uses else ""
            self._put(HostRestricted(link.endpoint.resources, frozenset(order.uses), why))

    def _drop(self, link: _RifLink, reason: str) -> None:
        endpoint = link.endpoint
        del self._links[endpoint.rif_id]
        self._ends.pop(endpoint.rif_id, None)
        for resource in endpoint.resources:
            self._rif_of.pop(resource.resource_id, None)
            self._note(resource, endpoint.host, "removed")
        link.scope.cancel()
        self._orphans(endpoint.rif_id, None)
        self._lose(link, reason)

    def _lose(self, link: _RifLink, reason: str) -> None:
        self._withhold(link, link.resource_ids)
        link.unsent.clear()
        self._put(ResourcesLost(link.resource_ids, f"host {link.endpoint.host}: {reason}"))

    async def _keep_connected(self, link: _RifLink) -> None:
        """Hold the connection to a RIF for as long as the RTS says that it is there."""
        pause_s = RECONNECT_FIRST_S
        with link.scope:
            while True:
                try:
                    await self._connect(link)
                except (PeerGone, OSError) as error:
                    link.peer = None
                    if self._awaits(link, str(error)):
                        await trio.sleep(RECONNECT_FIRST_S)
                        continue
                    link.defined.clear()
                    log.info("job %s: connection to %s: %s", self.job, link.endpoint.rif_id, error)
                    self._orphans(link.endpoint.rif_id, None)
                    self._lose(link, str(error))
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, RECONNECT_MAX_S)
                self._put(ResourcesUp(link.endpoint.resources, self._ends.get(link.endpoint.rif_id)))
                if link.rests:
                    self._put(HostRests(link.endpoint.resources, link.rests))

    def _awaits(self, link: _RifLink, reason: str) -> bool:
        """Whether a RIF is to be found again as it was; should it be dead, the RTS says so."""
        now, grace_s = trio.current_time(), self.grace_s
        if link.lost_at is None and grace_s:
            link.lost_at = now + grace_s
            log.info("job %s: %s is awaited for %g s: %s", self.job, link.endpoint.rif_id, grace_s, reason)
            if link.greeted:
                self._orphans(link.endpoint.rif_id, None)
        if link.lost_at is not None and now >= link.lost_at:
            link.lost_at = None
            return False
        return link.lost_at is not None

    async def _connect(self, link: _RifLink) -> None:
        """Open the connection, send what waited, and take what the RIF says until it is gone."""
        address, outside = link.endpoint.address, link.endpoint.outside
        if outside and not self.network.listens(address):  # it is in another process
            address = outside
        async with self.network.connect(address, role="job", name=self.job, expect="rif") as peer:
            if link.lost_at is None or not link.greeted:
                peer.post(self.opening)
            else:
                self._go_on(link, peer)
            link.lost_at, link.greeted = None, True
            for message in link.unsent:
                link.post(peer, message)
            link.unsent.clear()
            link.peer, link.last = peer, self._submitted
            try:
                await peer.listen(partial(self._take_from_rif, link))
            finally:
                if self.nested is not None:
                    self.nested.forget(peer)
                if self._files is not None:
                    self._files.forget(peer)

    def _is_own(self, link: _RifLink, message: FromTask) -> bool:
        return message.job == self.job and message.resource_id.startswith(link.prefix)

    def _go_on(self, link: _RifLink, peer: Peer) -> None:
        """Ask a RIF that can be heard again what became of all that it was sent."""
        waiting = {
            (one.task_id, one.attempt)
            for message in link.unsent
            if type(message) is Submit
            for one in message.submissions
        }
        attempts = tuple(one for one in self.sent_to(link.resource_ids) if one[1:] not in waiting)
        peer.post(WorkBack(replace(self.opening, adopts=""), attempts))
        for code_id in link.defined:
            peer.post(DefineCode(self.job, code_id, self._code(code_id)))

    def _take_from_rif(self, link: _RifLink, message: object) -> None:
        peer = link.peer
        assert peer is not None
        if isinstance(message, _REPORTS) and message.resource_id.startswith(link.prefix):
            self._put(message, peer)
        elif isinstance(message, FromTask) and self.nested is not None and self._is_own(link, message):
            self.nested.take(peer, message)
        elif isinstance(message, Orphans) and message.job == self.job:
            self._orphans(link.endpoint.rif_id, message)
        elif not take_message(self._files, self._nursery, peer, message):
            drop_offender(peer, f"job {self.job} does not take this {type(message).__name__} from a RIF")
