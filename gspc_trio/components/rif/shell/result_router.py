"""Result router of a RIF: it sends outcomes to job servers, or keeps them for a successor of a job.

Beside it are the relay between tasks that start others and their job servers, and answers about attempts.

A job may say that its work is to go on when its job server is gone (``OpenJob.grace_s``). Then what its tasks
bring is kept until another job server adopts them, or until the grace is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

import trio
from msgspec import Struct, field

from gspc_trio.components.rif.messages import Hold, Orphans, WorkBack
from gspc_trio.components.worker.machine import Worker
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
    ToTask,
)
from gspc_trio.components.worker.phases import AttemptPhase
from gspc_trio.components.worker.shell.compute_channel import Printed
from gspc_trio.components.worker.shell.staging import Settle
from gspc_trio.components.worker.shell.task_listener import TaskConnection
from gspc_trio.components.worker.shell.worker import WorkerShell
from gspc_trio.components.worker.verdict import without_values
from gspc_trio.core.ids import Attempt, Counter, JobId, ResourceId, TaskId
from gspc_trio.core.nested import NestedBroken, encode
from gspc_trio.core.task import Outcome, Reason, TaskError
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, drop_offender
from gspc_trio.protocol.envelope import EncodeError

FROM_SCHEDULER = (Submit, Cancel, TakeBack, DefineCode, Hold)
"""What a job's scheduler may say, after the OpenJob or WorkBack with which it begins."""

KEPT_BYTES_MAX = 64 * 2**20
"""Results that are kept for one job; with more its work is ended."""

LATELY_MAX, LATELY_BYTES_MAX = 1024, 16 * 2**20
"""So many results, of so many bytes, are kept of those that were sent to a job server last."""

UNHEARD = TaskError("lost", "nobody could be heard for a while, and what became of it was not kept")


class _RetainedWork(Struct, eq=False):
    """Work that goes on when its job server goes, and its results; ``same``: the job itself is awaited."""

    grace_s: float
    outstanding: dict[TaskId, None] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    size_bytes: int = 0
    successor: Peer | None = None
    successor_job: JobId = ""
    timer: trio.CancelScope = field(default_factory=trio.CancelScope)
    same: bool = False


class _Lately:
    """What was sent to a job server last: it may be on a connection that is dead, and nobody knows yet."""

    def __init__(self) -> None:
        self._outcomes: deque[Outcome] = deque()
        self._size_bytes = 0

    def add(self, outcomes: Sequence[Outcome]) -> None:
        self._outcomes.extend(outcomes)
        self._size_bytes += sum(map(_size_bytes, outcomes))
        while len(self._outcomes) > LATELY_MAX or self._size_bytes > LATELY_BYTES_MAX:
            self._size_bytes -= _size_bytes(self._outcomes.popleft())

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes)


def _size_bytes(outcome: Outcome) -> int:
    return sum(len(data) for part in outcome.values for data in part)


def job_of(first: OpenJob | WorkBack) -> JobId:
    """Return which job begins with this."""
    return first.job if isinstance(first, OpenJob) else first.opening.job


class _Waiting(Struct, eq=False):
    """What is to be passed on; ``message`` is None while it is not known what that will be."""

    first: Finished | Begun
    message: Finished | Begun | None = None


class Delivery:
    """Holds back what workers report, in its order, until it may go: results once others can read them.

    For its job server that is as if it had travelled a little longer.

    Args:
        deliver, tell_begun: pass it on.
    """

    def __init__(self, deliver: Callable[[Finished], None], tell_begun: Callable[[Begun], None]) -> None:
        self._deliver = deliver
        self._tell_begun = tell_begun
        self._waiting: dict[tuple[JobId, ResourceId], deque[_Waiting]] = {}
        self._empty = trio.Event()

    def finished(self, finished: Finished, settled: Settle | None, nursery: trio.Nursery) -> None:
        """Attempts have ended.

        Args:
            finished: how.
            settled: returns what is to be told of it, when it may be; None: it may be told as it is.
            nursery: in which that is waited for.
        """
        key = finished.job, finished.resource_id
        if settled is None and key not in self._waiting:
            self._deliver(finished)
            return
        entry = _Waiting(finished, finished if settled is None else None)
        self._waiting.setdefault(key, deque()).append(entry)
        if settled is not None:
            nursery.start_soon(self._settle, key, entry, settled)

    def begun(self, begun: Begun) -> None:
        """An attempt has begun."""
        waiting = self._waiting.get((begun.job, begun.resource_id))
        if waiting is None:
            self._tell_begun(begun)
        else:
            waiting.append(_Waiting(begun, begun))

    async def _settle(self, key: tuple[JobId, ResourceId], entry: _Waiting, settled: Settle) -> None:
        entry.message = await settled()
        waiting = self._waiting.get(key)
        if waiting is None or entry not in waiting:
            return  # its job is over
        while waiting and (message := waiting[0].message) is not None:
            waiting.popleft()
            if type(message) is Finished:
                self._deliver(message)
            elif type(message) is Begun:
                self._tell_begun(message)
        if not waiting:
            self._forget(key)

    def _forget(self, key: tuple[JobId, ResourceId]) -> None:
        del self._waiting[key]
        if not self._waiting:
            self._empty.set()
            self._empty = trio.Event()

    def held_back(self, job: JobId) -> set[tuple[TaskId, Attempt]]:
        """Return the attempts of a job that have ended, and of which nobody was told."""
        return {
            (outcome.task_id, outcome.attempt)
            for (its_job, _), waiting in self._waiting.items()
            if its_job == job
            for entry in waiting
            if isinstance(entry.first, Finished)
            for outcome in entry.first.outcomes
        }

    def forget_job(self, job: JobId) -> None:
        """A job is over here: nobody wants to know any more."""
        for key in [key for key in self._waiting if key[0] == job]:
            self._forget(key)

    async def wait_empty(self) -> None:
        """Wait until nothing is held back."""
        while self._waiting:
            await self._empty.wait()


class ResultRouter:
    """Sends the outcomes of a RIF to the job servers that are to have them.

    Args:
        end: ends the work of a job, saying why.
        grace_s: how long a job server whose connection is over is awaited; 0: not at all.

    Attributes:
        peers: connections to job servers.
        retained: jobs whose work goes on without their job server.
    """

    def __init__(self, end: Callable[[JobId, str], None], grace_s: float = 0.0) -> None:
        self.peers: dict[JobId, Peer] = {}
        self.retained: dict[JobId, _RetainedWork] = {}
        self.grace_s = grace_s
        self._end = end
        self._lately: dict[JobId, _Lately] = {}
        self._delivery = Delivery(self.deliver, self._tell_begun)

    def enter(
        self,
        first: OpenJob | WorkBack,
        peer: Peer,
        known: Container[JobId],
        workers: Mapping[str, Worker],
    ) -> tuple[JobId, OpenJob | None]:
        """A job server has connected; return its job, and what the RIF's machine is to be told.

        Args:
            first: what it says first.
            peer: the connection.
            known: jobs whose work goes on.
            workers: of the RIF.
        """
        if isinstance(first, OpenJob):
            self.attach(first, peer)
            return first.job, first
        job = first.opening.job
        if job not in known:
            self.attach(first.opening, peer)
            self._report(job, peer, first, {}, {}, ())
            return job, first.opening
        before, self.peers[job] = self.peers.get(job), peer
        if before is not None:
            before.drop(f"job {job} has connected again")
        kept = list(self._lately.get(job, ()))
        work = self.retained.get(job)
        if work is not None:
            work.timer.cancel()
            kept += work.outcomes
            work.outcomes, work.size_bytes = [], 0
            work.timer = trio.CancelScope()
            if work.same:
                del self.retained[job]
        by_key = {(one.task_id, one.attempt): one for one in kept}
        self._report(job, peer, first, by_key, workers, self._delivery.held_back(job))
        return job, None

    def is_anothers(self, first: OpenJob | WorkBack, peer: Peer) -> bool:
        """Return whether the job that a connection begins with is there from another process."""
        before = self.peers.get(job_of(first))
        return before is not None and before.is_held_by_another(peer)

    @staticmethod
    def _report(
        job: JobId,
        peer: Peer,
        back: WorkBack,
        kept: Mapping[tuple[TaskId, Attempt], Outcome],
        workers: Mapping[str, Worker],
        held_back: Container[tuple[TaskId, Attempt]],
    ) -> None:
        """Say what became of attempts of which the job server has heard nothing."""
        for resource_id, task_id, attempt in back.attempts:
            key = (task_id, attempt)
            worker = workers.get(resource_id)
            if key in kept:
                _post(peer, Finished(job, resource_id, (kept[key],)))
            elif (worker is None or worker.status(key) is None) and key not in held_back:
                lost = Outcome(task_id, attempt, Reason.LOST, error=UNHEARD)
                peer.post(Finished(job, resource_id, (lost,)))

    def attach(self, opening: OpenJob, peer: Peer) -> None:
        """A job server has connected."""
        job = opening.job
        before, self.peers[job] = self.peers.get(job), peer
        if before is not None:
            before.drop(f"job {job} has connected again")
        left = self.retained.pop(job, None)
        if left is not None:
            left.timer.cancel()
        if opening.grace_s > 0:
            self.retained[job] = _RetainedWork(opening.grace_s)
        if opening.adopts:
            self._adopt(opening.adopts, job, peer)

    def detach(self, job: JobId, peer: Peer, nursery: trio.Nursery) -> None:
        """A job server has gone: its work ends, or goes on for a while."""
        for orphan, left in list(self.retained.items()):
            if left.successor is peer:
                self._end(orphan, "who went on for it is gone, too")
        if self.peers.get(job) is not peer:
            return
        del self.peers[job]
        work = self.retained.get(job)
        if self.grace_s and work is None:  # should it be dead, the run-time system will say so
            work = self.retained[job] = _RetainedWork(self.grace_s, same=True)
        if work is None or not (work.outstanding or self.grace_s):
            self._end(job, f"its job server is gone: {peer.reason or 'the RIF stops'}")
        else:
            nursery.start_soon(self._wait_for_successor, job, work)

    def dismiss(self, job: JobId, reason: str) -> None:
        """The run-time system says that a job is over: end its work.

        Should its job server live (its connection to the run-time system was cut), it connects again and says
        anew who it is; on this connection it would be refused for ever.
        """
        peer = self.peers.pop(job, None)
        if peer is not None:
            peer.drop(f"its run-time system says that job {job} is over")
        self._end(job, reason)

    def drop(self, job: JobId, reason: str) -> None:
        """A job has done what it must not: its connection ends."""
        peer = self.peers.pop(job, None)
        if peer is not None:
            drop_offender(peer, reason)

    async def _wait_for_successor(self, job: JobId, work: _RetainedWork) -> None:
        with work.timer:
            await trio.sleep(work.grace_s)
            self._end(job, f"nobody went on for it within {work.grace_s:g} s")

    @property
    def orphaned(self) -> tuple[JobId, ...]:
        """Jobs whose job server is gone, with something here for it, or for who goes on for it."""
        return tuple(
            job for job, left in self.retained.items() if job not in self.peers and left.successor is None
        )

    def submitted(self, submit: Submit) -> None:
        """Note what a job whose work may go on has at work here."""
        work = self.retained.get(submit.job)
        if work is not None:
            work.outstanding.update(dict.fromkeys([one.task_id for one in submit.submissions]))

    def report(self, finished: Finished, settled: Settle | None, nursery: trio.Nursery) -> None:
        """Pass on what a worker reports, after what it has reported before: as :meth:`Delivery.finished`."""
        self._delivery.finished(finished, settled, nursery)

    async def wait_told(self) -> None:
        """Wait until nothing that workers have reported is held back."""
        await self._delivery.wait_empty()

    def deliver(self, finished: Finished) -> None:
        """Send outcomes to whoever is to have them, or keep them, or drop them."""
        work = self.retained.get(finished.job) if self.retained else None
        if work is not None:
            for outcome in finished.outcomes:
                work.outstanding.pop(outcome.task_id, None)
        peer = self.peers.get(finished.job)
        if peer is not None:
            _post(peer, finished)
            if self.grace_s:
                self._lately.setdefault(finished.job, _Lately()).add(finished.outcomes)
        elif work is not None:
            self._hand_over(finished.job, work, finished.outcomes)

    def begun(self, begun: Begun) -> None:
        """Tell the job server, if it is there, what cannot be taken back any more."""
        self._delivery.begun(begun)

    def _tell_begun(self, begun: Begun) -> None:
        peer = self.peers.get(begun.job)
        if peer is not None:
            peer.post(begun)

    def forget(self, job: JobId) -> None:
        """Nothing runs any more for the job."""
        self._lately.pop(job, None)
        self._delivery.forget_job(job)
        work = self.retained.pop(job, None)
        if work is None:
            return
        work.timer.cancel()
        if work.successor is not None:
            work.successor.post(Orphans(work.successor_job, (), (), over=True))

    def _adopt(self, orphan: JobId, successor_job: JobId, successor: Peer) -> None:
        work = self.retained.get(orphan)
        if work is None:
            successor.post(Orphans(successor_job, (), (), over=True))
            return
        before = self.peers.pop(orphan, None)
        if before is not None:
            before.drop(f"job {successor_job} goes on for it")
        work.timer.cancel()
        work.successor, work.successor_job = successor, successor_job
        kept, work.outcomes = work.outcomes, []
        to_come = (*work.outstanding, *(outcome.task_id for outcome in kept))
        successor.post(Orphans(successor_job, to_come, (), over=False))
        self._hand_over(orphan, work, kept)

    def _hand_over(self, orphan: JobId, work: _RetainedWork, outcomes: Sequence[Outcome]) -> None:
        if work.successor is None:
            work.outcomes += outcomes
            work.size_bytes += sum(map(_size_bytes, outcomes))
            if work.size_bytes > KEPT_BYTES_MAX:
                self._end(orphan, f"its results have more than {KEPT_BYTES_MAX} bytes, and nobody takes them")
            return
        for outcome in outcomes:
            try:
                work.successor.post(Orphans(work.successor_job, (), (outcome,), over=False))
            except EncodeError as error:
                work.successor.post(
                    Orphans(work.successor_job, (), (without_values(outcome, error),), over=False)
                )
        if not work.outstanding:
            self._end(orphan, "all its tasks have ended")


def _post(peer: Peer, finished: Finished) -> None:
    try:
        peer.post(finished)
    except EncodeError as error:
        if len(finished.outcomes) > 1:
            for outcome in finished.outcomes:
                _post(peer, Finished(finished.job, finished.resource_id, (outcome,)))
        else:
            failed = without_values(finished.outcomes[0], error)
            peer.post(Finished(finished.job, finished.resource_id, (failed,)))


RELAYED_MAX = 256
RELAYED_BYTES_MAX = 1 << 20
"""So many messages of a task, and bytes, are passed on at a time."""


class TaskRelay:
    """Passes on what tasks and job servers say to each other.

    Args:
        peers: connections to job servers.
    """

    def __init__(self, peers: Mapping[JobId, Peer]) -> None:
        self._peers = peers
        self._lines: dict[int, TaskConnection] = {}
        self._numbers = Counter()

    async def run(self, resource_id: ResourceId, line: TaskConnection) -> None:
        """Pass on what a task says, until it is silent or its job server is gone."""
        job, task_id = line.hello.job, line.hello.task_id
        peer = self._peers.get(job)
        if peer is None:
            line.close()
            return
        session = self._numbers.next()
        self._lines[session] = line
        data = encode(line.hello)
        posted = posted_bytes = 0
        try:
            while data and self._peers.get(job) is peer:
                posted, posted_bytes = posted + 1, posted_bytes + len(data)
                try:
                    peer.post(FromTask(job, session, resource_id, task_id, data))
                except EncodeError as error:
                    line.send(encode(NestedBroken(str(error))))
                if posted >= RELAYED_MAX or posted_bytes >= RELAYED_BYTES_MAX:
                    await peer.sent()  # until then nothing more is read of what the process says
                    posted = posted_bytes = 0
                data = await line.receive()
        finally:
            line.close()
            del self._lines[session]
            peer.post(FromTask(job, session, resource_id, task_id, b""))

    def tell(self, message: ToTask) -> None:
        """Pass on what a job server says; without data the connection ends."""
        line = self._lines.get(message.session)
        if line is None or line.hello.job != message.job:
            return
        if message.data:
            line.send(message.data)
        else:
            line.close()

    def forget(self, job: JobId) -> None:
        """The job server is gone: end the connections of its tasks."""
        for line in self._lines.values():
            if line.hello.job == job:
                line.close()


READ_TIMEOUT_S = 1.0
"""Seconds that reading what was printed may take; then it is told without."""


async def answer_job(
    call: IncomingCall,
    job: JobId | None,
    workers: Mapping[ResourceId, Worker],
    shells: Mapping[ResourceId, WorkerShell],
) -> None:
    """Answer a call of a job server at a RIF: how one of its attempts is, and what it has printed so far.

    Args:
        call: to be answered.
        job: who calls, None if it has not said so.
        workers, shells: of the RIF.
    """
    asked = call.body
    if not isinstance(asked, GetAttempt):
        call.fail(TypeError(f"a RIF cannot be asked for {type(asked).__name__} by a job"))
    elif job is None or asked.job != job:
        call.fail(ValueError(f"job {job or '(none)'} asks for an attempt of job {asked.job}"))
    else:
        call.reply(await _status(asked, workers, shells))


async def _status(
    asked: GetAttempt, workers: Mapping[ResourceId, Worker], shells: Mapping[ResourceId, WorkerShell]
) -> AttemptStatus:
    name, key = asked.resource_id, (asked.task_id, asked.attempt)

    def phase() -> AttemptPhase | None:
        worker = workers.get(name)
        return worker.status(key) if worker is not None and worker.job == asked.job else None

    before, shell = phase(), shells.get(name)
    if before is None or shell is None:
        return AttemptStatus("")
    pid, printed = shell.pid_for(asked.job), Printed()
    if before is AttemptPhase.COMPUTE:
        with trio.move_on_after(READ_TIMEOUT_S):
            printed = await shell.printed(asked.job, asked.seen)
        if phase() is not before:  # meanwhile it has ended: what was read may be another's
            return AttemptStatus("")
    return AttemptStatus(before.value, pid, *printed)
