"""Several resource managers, as their run-time system sees them: it starts and watches them (ASP-11).

Jobs speak to their run-time system as ever. What they say goes on to the manager that serves them, and what
that decides comes back. When the process of a manager ends, the others go on with its hosts and jobs, and
another process is started in its place.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import trio
from msgspec.structs import replace

from gspc_trio.components.managers.claims import OptimisticManagers
from gspc_trio.components.managers.members import Managers
from gspc_trio.components.managers.messages import (
    BeginManaging,
    JobWords,
    ManagerDown,
    ManagerHere,
    ManagerOrder,
    ManagerRecords,
    ManagersAction,
    ManagerSaid,
    ManagersEvent,
    ManagerUp,
    StartManager,
    TellJob,
    TellManager,
    Word,
)
from gspc_trio.components.rm.events import Added, Awaited, Removed, RmEvent
from gspc_trio.components.rm.explain import (
    Explained,
    ExplainedRequest,
    ExplainJob,
    GetManagerStatus,
    JobShare,
    ManagerStatus,
)
from gspc_trio.components.rm.messages import (
    ClassStatus,
    Grant,
    GrantsAhead,
    Lapsed,
    Offence,
    Recall,
    Refuse,
    Revoke,
    Revoked,
)
from gspc_trio.components.rm.shell.remote import ASK_TIMEOUT_S, RemoteManager, on_our_clock
from gspc_trio.components.rm.shell.service import FromJob, RmShell, ToRts, own_words, with_reason
from gspc_trio.components.rts.events import ResourcesLeft, RmAnswered
from gspc_trio.components.rts.messages import ManagerEntry
from gspc_trio.core.ids import GrantId, JobId, ResourceId
from gspc_trio.core.machine import IllegalEvent, Performer, performs
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, RemoteError, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.nursery.scopes.spawn import ProcessStartError
from gspc_trio.records.facts import GrantChanged, Record, ResourceChanged

log: logging.Logger = logging.getLogger(__name__)

RESTART_S = 0.2
"""Pause before a manager is started again; twice as long each time, until one has lasted."""

RESTART_MAX_S = 10.0
"""Longest pause."""

COME_UP_S = 30.0
"""How long the managers may take to come up at first."""


class ManagersFailed(Exception):
    """No resource manager came up; the message is for people."""


class ManagerGroup(Performer[ManagersAction]):
    """Stands in a run-time system for its resource managers.

    Args:
        machine: which says who decides what.
        start: runs a manager.
        placement: which free resource is used next.
        issue: returns credentials for the TLS of a manager, "" for none.
        tell_rts: takes an event for the RTS machine.
        record: takes a record.

    Attributes:
        peers: job -> its connection.
        record: takes a record; whoever replaces it passes on what it takes.
        why_refused: returns what a job is told of a refusal besides its reason, or "".
        addresses: of the run-time system.
    """

    def __init__(
        self,
        machine: Managers,
        start: StartManager,
        placement: str,
        issue: Callable[[str], str],
        tell_rts: Callable[[ToRts], None],
        record: Callable[[Record], None],
    ) -> None:
        self.machine = machine
        self.inbox: Inbox[ManagersEvent] = Inbox()
        self.peers: dict[JobId, Peer] = {}
        self.record = record
        self.why_refused: Callable[[], str] = str
        self.addresses: Sequence[str] = ()
        self._start = start
        self._placement = placement
        self._issue = issue
        self._tell_rts = tell_rts
        self._tokens: dict[str, bytes] = {}
        self._links: dict[int, Peer] = {}
        self._pids: dict[int, int] = {}
        self._running: dict[int, trio.CancelScope] = {}
        self._all_up = trio.Event()
        self._status: Mapping[int, ManagerStatus] = {}
        self._explained: Mapping[JobId, Sequence[ExplainedRequest]] = {}

    # What the RTS asks of a resource manager ----------------------------------------------------------------

    def tell(self, event: RmEvent) -> None:
        """Take what the RTS says."""
        self.inbox.put(event)

    def take(self, peer: Peer, job: JobId, said: Sequence[FromJob]) -> None:
        """Take what a job says; one that speaks for another job loses its connection."""
        words = own_words(peer, job, said)
        if words:
            self.inbox.put(JobWords(job, tuple(words)), peer)

    def newest_given(self, resource_id: ResourceId, grant_id: GrantId) -> GrantId:
        """Return the newest grant of a resource, see the machine."""
        return self.machine.newest_given(resource_id, grant_id)

    def status(self) -> ManagerStatus:
        """Return what :meth:`look` has found, of all managers together."""
        return merged([*self._status.values()], isinstance(self.machine, OptimisticManagers))

    def explain(self, job: JobId) -> Sequence[ExplainedRequest]:
        """Return what :meth:`look` has found, and which manager serves the job, and why."""
        number = self.machine.job_of.get(job)
        if number is None:
            return ()
        by = f"; manager {number + 1} serves the job: {self.machine.why[job]}"
        return [replace(entry, reason=entry.reason + by) for entry in self._explained.get(job, ())]

    def check(self) -> None:
        """Assert every invariant of the machine."""
        self.machine.check()

    def entries(self) -> tuple[ManagerEntry, ...]:
        """Return the managers, and what each has, for people."""
        jobs = self.machine.job_of
        return tuple(
            ManagerEntry(
                member.number + 1,
                self._pids.get(member.number, 0),
                member.is_up,
                tuple(self.machine.hosts_of(member.number)),
                tuple(job for job, number in jobs.items() if number == member.number),
                member.losses,
            )
            for member in self.machine.members
        )

    async def look(self, job: JobId | None = None) -> None:
        """Ask the managers how they are, and why requests of a job wait; who does not answer is left out.

        Raises:
            RemoteError: there is no such job, or nobody to ask about it.
        """
        found: dict[int, ManagerStatus] = {}

        async def ask(number: int, link: Peer) -> None:
            with suppress(PeerGone, trio.TooSlowError, RemoteError):
                found[number] = await link.call(GetManagerStatus(), ASK_TIMEOUT_S)

        async with trio.open_nursery() as nursery:
            for number, link in self._links.items():
                nursery.start_soon(ask, number, link)
        self._status = found
        if job is not None:
            await self._look_at(job)

    async def _look_at(self, job: JobId) -> None:
        number = self.machine.job_of.get(job)
        if number is None:
            raise RemoteError("IllegalEvent", f"job {job} has not joined, or has gone")
        link = self._links.get(number)
        try:
            if link is not None:
                told: Explained = await link.call(ExplainJob(job), ASK_TIMEOUT_S)
                self._explained = {job: on_our_clock(told)}
                return
        except (PeerGone, trio.TooSlowError) as problem:
            log.debug("manager %d did not answer: %s", number + 1, problem)
        raise RemoteError("ManagerGone", f"manager {number + 1} does not answer: ask again")

    # Processes ----------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the managers until cancelled; it has started when all of them are there.

        Raises:
            ManagersFailed: they do not come up.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drive)
            for member in self.machine.members:
                nursery.start_soon(self._keep, member.number)
            with trio.move_on_after(COME_UP_S):
                await self._all_up.wait()
            if not self._links:
                raise ManagersFailed(f"no resource manager came up within {COME_UP_S:g} s")
            task_status.started()

    async def _drive(self) -> None:
        await drive(self.machine, self.inbox, self.perform, refused=self._refused)

    async def _keep(self, number: int) -> None:
        """Run a manager, and another one whenever it has ended."""
        pause_s = RESTART_S
        while True:
            name = f"m{number + 1}"
            token = self._tokens[name] = secrets.token_bytes(32)
            numbers = self.machine.numbering(number)
            rts = next((one for one in self.addresses if one.startswith("ws")), self.addresses[0])
            order = ManagerOrder(
                rts, token, name, self.machine.epoch, numbers.first, numbers.step,
                self._placement, isinstance(self.machine, OptimisticManagers), self._issue(name),
            )  # fmt: skip
            began_s = trio.current_time()
            with trio.CancelScope() as self._running[number]:
                try:
                    await self._start(order)
                except (OSError, ProcessStartError) as error:
                    log.warning("manager %d cannot be started: %s", number + 1, error)
            pause_s = RESTART_S if trio.current_time() - began_s > RESTART_MAX_S else pause_s
            log.warning("the process of resource manager %d has ended: another one is started", number + 1)
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, RESTART_MAX_S)

    def token_of(self, name: str) -> bytes | None:
        """Return the secret of the manager of this name that was started last."""
        return self._tokens.get(name)

    async def serve(self, peer: Peer) -> None:
        """Serve the connection of a manager until it is over; then its process is ended."""
        number = int(peer.name.removeprefix("m")) - 1
        if number in self._links:
            drop_offender(peer, f"{peer.name} is connected already")
            return
        try:
            here: ManagerHere = await peer.call(BeginManaging())
            self._links[number], self._pids[number] = peer, here.pid
            self.inbox.put(ManagerUp(number))
            if len(self._links) == len(self.machine.members):
                self._all_up.set()
            while True:
                for message in await peer.receive():
                    self._hear(number, peer, message)
        finally:
            if self._links.get(number) is peer:
                del self._links[number]
                self.inbox.put(ManagerDown(number, peer.reason))
            if number in self._running:
                self._running[number].cancel()

    def _hear(self, number: int, peer: Peer, message: object) -> None:
        if isinstance(message, Word):
            self.inbox.put(ManagerSaid(number, message), peer)
        else:
            drop_offender(peer, f"a resource manager does not say {type(message).__name__}")

    # Actions ------------------------------------------------------------------------------------------------

    @performs(TellManager)
    def _tell_manager(self, action: TellManager) -> None:
        event, link = action.event, self._links.get(action.number)
        if isinstance(event, Awaited):  # its clock is not ours: say how long
            event = replace(event, until_s=max(0.0, event.until_s - trio.current_time()))
        if link is not None:
            with suppress(PeerGone):
                link.post(event)

    @performs(Grant, Recall, Lapsed, Refuse)
    def _tell_job(self, action: Grant | Recall | Lapsed | Refuse) -> None:
        peer = self.peers.get(action.job)
        if peer is not None:  # who is gone hears nothing any more
            if isinstance(action, Refuse):
                action = with_reason(action, self.why_refused())
            peer.post(action)

    @performs(TellJob)
    def _tell_words(self, action: TellJob) -> None:
        peer = self.peers.get(action.job)
        if peer is not None:
            for word in action.words:
                peer.post(with_reason(word, self.why_refused()) if isinstance(word, Refuse) else word)

    @performs(Offence)
    def _offended(self, action: Offence) -> None:
        offender = self.peers.get(action.job)
        if offender is not None:
            drop_offender(offender, action.reason)

    @performs(Revoke, ResourcesLeft, RmAnswered, GrantsAhead)
    def _tell(self, action: ToRts) -> None:
        self._tell_rts(action)

    @performs(GrantChanged, ResourceChanged)
    def _note(self, record: GrantChanged | ResourceChanged) -> None:
        self.record(record)

    @performs(ManagerRecords)
    def _note_all(self, action: ManagerRecords) -> None:
        now = trio.current_time()
        for record in action.records:
            self.record(replace(record, at_s=now))

    def _refused(self, event: ManagersEvent, error: IllegalEvent) -> None:
        """The RTS has said what cannot be, which has changed nothing: tell it."""
        if isinstance(event, Added | Removed):
            self._tell_rts(RmAnswered(event, str(error)))
        elif isinstance(event, Revoked):
            log.info("%s is late: %s", event, error)
        else:
            raise error


AnyManager: TypeAlias = RmShell | RemoteManager | ManagerGroup
"""What a run-time system has for a resource manager: one beside it, one elsewhere, or several."""


def merged(found: Sequence[ManagerStatus], alike: bool) -> ManagerStatus:
    """Return the status of several managers as one; nothing is on its way that another one has.

    Args:
        found: what each says.
        alike: all of them see all hosts; what waits only one of them knows.
    """
    classes: dict[str, ClassStatus] = {}
    for status in found[:1] if alike else found:
        for name, one in status.classes.items():
            had = classes.get(name, ClassStatus(0, 0, 0, 0))
            classes[name] = ClassStatus(
                had.total + one.total, had.free + one.free, had.held + one.held, had.blocked + one.blocked
            )
    jobs: dict[JobId, JobShare] = {}
    for status in found:
        for name, share in status.jobs.items():
            known = jobs.get(name, share)
            jobs[name] = replace(share, demand=known.demand | share.demand, held=known.held | share.held)
    held = sum(sum(job.held.values()) for job in jobs.values())
    return ManagerStatus(
        classes,
        {name: memory for status in found for name, memory in status.memories.items()},
        {
            name: replace(job, share=sum(job.held.values()) / held if held else 0.0)
            for name, job in jobs.items()
        },
        coming={},
        revoking=tuple(dict.fromkeys(one for status in found for one in status.revoking)),
        leaving=tuple(dict.fromkeys(one for status in found for one in status.leaving)),
        reserved=next((status.reserved for status in found if status.reserved is not None), None),
    )
