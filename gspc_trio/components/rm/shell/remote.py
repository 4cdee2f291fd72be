"""A resource manager that runs elsewhere, as its run-time system sees it (RTS-4): the replay log's shell.

Jobs speak to their run-time system as ever; their demands and releases go on over one connection, and grants
come back over it, pushed by credit: no task waits for a round trip. When the connection is lost, tasks that
run go on; nothing new is granted until there is a resource manager again, the same or another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress

import trio
from msgspec.structs import replace

from gspc_trio.components.rm.events import Awaited, RmEvent
from gspc_trio.components.rm.explain import (
    Explained,
    ExplainedRequest,
    ExplainJob,
    GetManagerStatus,
    ManagerStatus,
)
from gspc_trio.components.rm.messages import (
    Grant,
    GrantsAhead,
    Lapsed,
    ManagerReady,
    Offence,
    Recall,
    Refuse,
    Revoke,
    ServeRts,
)
from gspc_trio.components.rm.replay_log import ENDING, ReplayLog
from gspc_trio.components.rm.shell.service import FromJob, ToRts, own_words, with_reason
from gspc_trio.components.rts.events import ResourcesLeft, RmAnswered
from gspc_trio.core.ids import GrantId, JobId, ResourceId
from gspc_trio.nursery.connections.connection_file import ConnectionFileError
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, RemoteError, drop_offender
from gspc_trio.records.facts import GrantChanged, Record, ResourceChanged
from gspc_trio.records.messages import RecordBatch

log: logging.Logger = logging.getLogger(__name__)

RETRY_S = 0.2
"""Pause before each try to reach a resource manager that is awaited."""

ASK_TIMEOUT_S = 2.0
"""How long it may take to say how it is."""

GRACE_S = 30.0
"""How long a resource manager is awaited that cannot be reached."""

Connect = Callable[[], AbstractAsyncContextManager[Peer]]

_UNKNOWN = ManagerStatus({}, {}, {}, {}, (), (), None)


class ManagerGone(Exception):
    """The resource manager has gone, or serves another run-time system; the message is for people."""


class RemoteManager:
    """Stands in a run-time system for the resource manager that runs elsewhere.

    Args:
        connect: opens a connection to it; called again when one is lost.
        name: of the run-time system, for people.
        epoch: no grant of this epoch, or an older one, is to be given.
        tell_rts: takes an event for the RTS machine.
        record: takes a record.

    Attributes:
        peers: job -> its connection.
        record: takes a record; whoever replaces it passes on what it takes.
        why_refused: returns what a job is told of a refusal besides its reason, or "".
    """

    def __init__(
        self,
        connect: Connect,
        name: str,
        epoch: int,
        tell_rts: Callable[[ToRts], None],
        record: Callable[[Record], None],
    ) -> None:
        self.peers: dict[JobId, Peer] = {}
        self._connect = connect
        self._name = name
        self._tell_rts = tell_rts
        self.record = record
        self.why_refused: Callable[[], str] = str
        self._replay_log = ReplayLog(epoch)
        self._link: Peer | None = None
        self._status = _UNKNOWN
        self._explained: Mapping[JobId, Sequence[ExplainedRequest]] = {}

    # What the RTS asks of a resource manager ----------------------------------------------------------------

    def tell(self, event: RmEvent) -> None:
        """Pass on what the RTS says."""
        self._replay_log.said(event)
        if self._link is not None:
            self._post(self._link, event)

    def take(self, peer: Peer, job: JobId, said: Sequence[FromJob]) -> None:
        """Pass on what a job says; one that speaks for another job loses its connection."""
        for message in own_words(peer, job, said):
            self.tell(message)

    def newest_given(self, resource_id: ResourceId, grant_id: GrantId) -> GrantId:
        """Return the newest grant of a resource, see the machine."""
        return self._replay_log.newest_given(resource_id, grant_id)

    def status(self) -> ManagerStatus:
        """Return what :meth:`look` has found."""
        return self._status

    def explain(self, job: JobId) -> Sequence[ExplainedRequest]:
        """Return what :meth:`look` has found."""
        return self._explained.get(job, ())

    def check(self) -> None:
        """Nothing: the machine is elsewhere."""

    async def look(self, job: JobId | None = None) -> None:
        """Ask how it is, and why requests of a job wait; without an answer its status is as it was.

        Raises:
            RemoteError: there is no such job, or nobody to ask about it.
        """
        link, problem = self._link, "is away: until it is back nothing begins"
        if link is not None:
            try:
                self._status = await link.call(GetManagerStatus(), ASK_TIMEOUT_S)
                if job is not None:
                    found: Explained = await link.call(ExplainJob(job), ASK_TIMEOUT_S)
                    self._explained = {job: on_our_clock(found)}
                return
            except PeerGone as gone:
                log.debug("the resource manager has gone: %s", gone)
            except trio.TooSlowError:
                problem = f"did not answer within {ASK_TIMEOUT_S:g} s: ask again"
                log.debug("the resource manager %s", problem)
        if job is not None:
            raise RemoteError("ManagerGone", f"the resource manager {problem}")

    # The connection -----------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve over a connection, and others after it.

        Raises:
            ManagerGone: it serves another run-time system, or was away for too long.
            ConnectionProblem, ConnectionFileError: it cannot be reached when this is called.
        """
        gone = await self._serve(task_status.started)
        while True:
            log.warning("no connection to the resource manager (%s): waiting for %g s", gone, GRACE_S)
            with trio.move_on_after(GRACE_S) as waiting:
                gone = await self._serve_again(waiting)
            if waiting.cancelled_caught:
                reason = f"the resource manager has gone ({gone})"
                raise ManagerGone(f"{reason}; it did not come back within {GRACE_S:g} s")

    async def _serve_again(self, waiting: trio.CancelScope) -> str:
        def there() -> None:
            waiting.deadline = float("inf")
            log.warning("the resource manager is there again")

        while True:
            await trio.sleep(RETRY_S)
            try:
                return await self._serve(there)
            except (ConnectionProblem, ConnectionFileError, OSError) as problem:
                log.debug("it is not back: %s", problem)

    async def _serve(self, there: Callable[[], None]) -> str:
        """Serve over one connection; return why it is over."""
        async with self._connect() as peer:
            try:
                ready: ManagerReady = await peer.call(ServeRts(self._replay_log.epoch, self._name))
                self._replay_log.epoch = max(self._replay_log.epoch, ready.epoch)
                for event in self._replay_log.replay():
                    self._post(peer, event)
                self._link = peer
                there()
                while True:
                    for message in await peer.receive():
                        self._hear(peer, message)
            except RemoteError as error:
                raise ManagerGone(error.message) from error
            except PeerGone as gone:
                return gone.reason
            finally:
                self._link = None

    def _post(self, peer: Peer, event: RmEvent) -> None:
        if isinstance(event, Awaited):  # its clock is not ours: say how long
            event = replace(event, until_s=max(0.0, event.until_s - trio.current_time()))
        with suppress(PeerGone):  # it is told again
            peer.post(event)

    def _hear(self, peer: Peer, message: object) -> None:
        if isinstance(message, Grant | Recall | Refuse | Lapsed):
            if not isinstance(message, Recall):
                self._replay_log.heard(message)
            job = self.peers.get(message.job)
            if job is not None:  # who is gone hears nothing any more
                if isinstance(message, Refuse):
                    message = with_reason(message, self.why_refused())
                job.post(message)
        elif isinstance(message, Revoke | ResourcesLeft | GrantsAhead | RmAnswered):
            self._hear_for_rts(message)
        elif isinstance(message, RecordBatch):
            self._note(message)
        elif isinstance(message, Offence):
            offender = self.peers.get(message.job)
            if offender is not None:
                drop_offender(offender, message.reason)
        else:
            drop_offender(peer, f"a resource manager does not say {type(message).__name__}")

    def _hear_for_rts(self, message: Revoke | ResourcesLeft | GrantsAhead | RmAnswered) -> None:
        if isinstance(message, Revoke):
            self._replay_log.heard(message)
        elif isinstance(message, ResourcesLeft):
            self._replay_log.left(message.resource_ids)
        elif isinstance(message, RmAnswered) and not self._replay_log.answered(
            message.event, message.refusal
        ):
            return  # what was told again, of which the RTS knows
        self._tell_rts(message)

    def _note(self, batch: RecordBatch) -> None:
        """Take records, on the clock of this process; what is told again was known."""
        now = trio.current_time()
        for record in batch.records:
            if isinstance(record, GrantChanged | ResourceChanged) and getattr(record, "job", "") != ENDING:
                self.record(replace(record, at_s=now))


def on_our_clock(found: Explained) -> list[ExplainedRequest]:
    """Return an explanation with its times on the clock of this process."""
    offset_s = trio.current_time() - found.now_s
    return [
        replace(
            entry,
            since_s=entry.since_s + offset_s,
            patient_until_s=None if entry.patient_until_s is None else entry.patient_until_s + offset_s,
        )
        for entry in found.waiting
    ]
