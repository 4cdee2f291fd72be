"""A host whose run-time system and jobs do what they may, in any order and at the worst moment.

The RIF is a real one; who speaks to it is played. What a run-time system and schedulers make nearly
impossible, and a RIF must withstand, happens here all the time: a grant comes before the older one has been
given back, one that has lapsed comes again, or one that was never given; a revocation crosses a submit; a job
connects twice; tasks are cancelled and taken back as they begin, end or die.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from zlib import crc32

import trio
from msgspec.structs import replace

from gspc_trio.components.rif.messages import AddResources, CloseJobEverywhere, Hold, RemoveResources, StopRif
from gspc_trio.components.rif.shell.service import open_rif
from gspc_trio.components.rm.messages import GetNewestGrant, GrantsAhead, NewestGrant, Revoke, Revoked
from gspc_trio.components.worker.events import AttemptKey
from gspc_trio.components.worker.messages import (
    Cancel,
    DefineCode,
    Finished,
    OpenJob,
    Submission,
    Submit,
    TakeBack,
)
from gspc_trio.components.worker.shell.staging import StagingError
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId
from gspc_trio.core.resources import Resource
from gspc_trio.core.staging import StageLimits
from gspc_trio.core.task import Outcome, TaskError, TaskOptions
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone, RemoteError
from gspc_trio.protocol.values import Reference, encode_reference
from gspc_trio.records.facts import HostLoad
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.cluster import Cluster
from gspc_trio.testing.simulated.backend import Behaviour, SimulatedBackend, open_simulated_backend
from gspc_trio.testing.simulated.process import SimulatedProcess

HOST, RIF_ID = "field", "r9"
ROLE = "drilled"
"""Of its processes; no fault of the menu happens to them."""

EPOCH = 900
"""Of the grants; no run-time system of the cluster gets so far."""

FORGED = 0.04
"""So many grants are made up: the run-time system has not given them, though it may do so later."""

STEPS = 100
PAUSES_S = (0.0, 0.0, 0.0005, 0.002, 0.02, 0.1, 0.3)
"""Between two steps."""

SETTLE_S, SETTLE_LOOKS = 30.0, 300
"""Within which all that was submitted has ended, and how often that is looked at."""

CALL_S = 20.0
AHEAD = 30
"""So many grants are announced ahead."""

ORDERLY = 0.75
"""In so many cases a resource is granted only when it is free."""

INPUTS_BYTES_MAX = 100
"""Of one of the jobs."""

FETCHES = "field3"
NEVER_S = 1e9

NODE = f"{RIF_ID}.node"
CORES = tuple(f"{RIF_ID}.core{number}" for number in range(3))
SOCKET = f"{RIF_ID}.socket"
ELSEWHERE = "r8.core0"

HARDWARE = (
    Resource(NODE, "node"),
    Resource(SOCKET, "socket", (NODE,)),
    *(Resource(name, "core", (SOCKET,)) for name in CORES[:2]),
    Resource(CORES[2], "core", (NODE,)),
)

SETS: Sequence[tuple[ResourceId, ...]] = (
    *((name,) for name in (*CORES, *CORES, SOCKET, NODE)),
    *[CORES[:2], (CORES[1], CORES[2])] * 2,
    (CORES[0], ELSEWHERE),
)
"""What is granted together."""

STAGED = (
    *[TaskOptions(stage_in=True), TaskOptions(stage_in=True, stage_out=True)] * 3,
    TaskOptions(),
    TaskOptions(stage_in=True, may_rerun=False),
)
"""Of the tasks of the job that fetches much."""

OPTIONS = (
    *[TaskOptions()] * 4,
    *[TaskOptions(stage_in=True), TaskOptions(stage_out=True), TaskOptions(stage_in=True, stage_out=True)]
    * 2,
    TaskOptions(may_rerun=False),
    TaskOptions(may_rerun=False, stage_in=True, stage_out=True),
    TaskOptions(timeout_s=0.15),
    TaskOptions(timeout_s=0.15, stage_out=True),
)


class Drill:
    """Drills one host.

    Args:
        cluster: in which it is.
        random: to draw from.
        watch: told of the compute of the host.
        staging_failed: told of each attempt whose data cannot be staged.
        fail: told of what does not hold.
    """

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        watch: Callable[[SimulatedProcess, SimulatedBackend], None],
        staging_failed: Callable[[SimulatedProcess, JobId, Submission], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._watch = watch
        self._staging_failed = staging_failed
        self._fail = fail
        self._salt = random.getrandbits(32)
        self._stage_ins_max = (0, 1, 4)[self._salt % 3]
        self._open_s = random.choice((0.0, 0.002, 0.05, 0.2))
        self._kill_s = random.choice((0.0, 0.001, 0.02, 0.1))
        self._rts_port = 7000
        self._rif: Peer | None = None
        self._came, self._is_up = trio.Event(), trio.Event()
        self._address = ""
        self._backend: SimulatedBackend
        self._jobs = {
            "field1": OpenJob("field1"),
            "field2": OpenJob("field2", fate=False),
            FETCHES: OpenJob(
                FETCHES,
                stage=StageLimits(inputs_bytes_max=INPUTS_BYTES_MAX, attempts_max=self._stage_ins_max),
            ),
        }
        self._peers: dict[JobId, Peer] = {}
        self._nursery: trio.Nursery
        self._number = self._ahead = self._task_id = 0
        self._used: dict[ResourceId, GrantId] = {}
        self._grants: list[tuple[JobId, GrantId, tuple[ResourceId, ...]]] = []
        self._given: dict[ResourceId, GrantId] = {}
        self._sent: list[tuple[JobId, ResourceId, AttemptKey]] = []
        self._open: dict[tuple[JobId, AttemptKey], None] = {}
        self._steps: Sequence[tuple[Callable[[], None], int]] = (
            (self._grant, 20),
            (self._more, 12),
            (self._echo, 3),
            (self._hold, 3),
            (self._cancel, 6),
            (self._take_back, 6),
            (self._revoke, 5),
            (self._release, 16),
            (self._die, 4),
            (self._run_short, 1),
            (self._resize, 3),
            (self._open_again, 1),
            (self._close, 1),
        )

    async def run(self) -> None:
        """Drill, and return when all has been said and has ended."""
        driller = self._cluster.spawn("driller", ROLE, "drillground", self._drill)
        await driller.ended.wait()

    async def _drill(self, process: SimulatedProcess) -> None:
        network = self._cluster.network(process)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery, self._network = nursery, network
                listen = partial(network.listen, role="rts", name="rts")
                address = await nursery.start(listen, f"ws://{process.host}:7000", self._serve)
                drilled = self._cluster.spawn("field", ROLE, HOST, partial(self._be_drilled, address=address))
                with trio.fail_after(CALL_S):
                    await self._came.wait()
                    await self._is_up.wait()
                assert self._rif is not None
                await self._rif.call(AddResources(HARDWARE), CALL_S)
                for job in self._jobs:
                    await nursery.start(self._be_job, job)
                steps = [step for step, _ in self._steps]
                weights = [weight for _, weight in self._steps]
                for step in self._random.choices(steps, weights, k=STEPS):
                    if self._ahead < self._number + AHEAD:
                        self._ahead = self._number + 2 * AHEAD
                        self._rif.post(GrantsAhead((EPOCH, self._ahead)))
                    step()
                    await trio.sleep(self._random.choice(PAUSES_S))
                await self._settle()
                self._rif.post(StopRif())
                with trio.move_on_after(CALL_S):
                    await drilled.ended.wait()
                if drilled.alive:
                    self._fail(Broken(f"{drilled.name} was told to stop, and has not after {CALL_S:g} s"))
                nursery.cancel_scope.cancel()
        except* (PeerGone, RemoteError, ConnectionProblem, OSError, trio.TooSlowError):
            pass  # what happens to time and hosts meanwhile may end a connection

    # Who is drilled -----------------------------------------------------------------------------------------

    async def _be_drilled(self, process: SimulatedProcess, address: str) -> None:
        with suppress(ConnectionProblem):
            async with open_simulated_backend(self._behave, open_s=self._open_s) as backend:
                self._backend = backend
                self._watch(process, backend)
                backend.kill_s, backend.frail = self._kill_s, self._random
                async with open_rif(
                    self._cluster.network(process),
                    rif_id=RIF_ID,
                    incarnation=1,
                    host=HOST,
                    hardware=HARDWARE,
                    backend=backend,
                    listen=f"ws://{HOST}:7001",
                    rts=address,
                    load=_no_load,
                    staging=_Staging(partial(self._staging_failed, process), self._salt),
                    clock=trio.current_time,
                ) as rif:
                    self._address = rif.address
                    self._is_up.set()
                    process.reason = await rif.wait_ended()

    def _behave(self, submission: Submission, code: bytes) -> Behaviour:
        del code
        draw = crc32(b"%d" % submission.task_id, self._salt)
        duration_s = (0.0, 0.0, 0.001, 0.01, 0.05, 0.2)[draw % 6]
        if submission.options.timeout_s is not None and draw // 6 % 2:
            return Behaviour(NEVER_S)
        end = draw // 12 % 12
        if end == 0:
            return Behaviour(duration_s, dies="killed by signal 9")
        return Behaviour(duration_s, error=TaskError("ValueError", "it fails") if end == 1 else None)

    # The run-time system that is played ---------------------------------------------------------------------

    async def _serve(self, peer: Peer) -> None:
        self._rif = peer
        self._came.set()
        with suppress(PeerGone):
            await peer.listen(self._take_from_rif)
        self._nursery.cancel_scope.cancel()

    def _take_from_rif(self, message: object) -> None:
        if isinstance(message, Revoked):
            self._forget(message.grant_id)
        elif isinstance(message, IncomingCall) and isinstance(message.body, GetNewestGrant):
            message.reply(NewestGrant(self._given.get(message.body.resource_id, NO_GRANT)))

    def _give(self, job: JobId, grant_id: GrantId, names: tuple[ResourceId, ...]) -> None:
        """Note a grant; one that is older than another of a resource was given before, and comes late."""
        self._grants.append((job, grant_id, names))
        for name in names:
            self._given[name] = max(grant_id, self._given.get(name, NO_GRANT))

    def _forget(self, grant_id: GrantId) -> None:
        for name in [name for name, used in self._used.items() if used <= grant_id]:
            del self._used[name]

    def _revoke(self) -> None:
        if self._grants and self._rif is not None:
            _, grant_id, names = self._random.choice(self._grants[-6:])
            if self._random.random() < 0.1:
                grant_id = (EPOCH, self._number + 1)  # what it is about has not come yet
                self._number += 1
                self._give(self._some_job(), grant_id, names)
            here = tuple(name for name in names if name.startswith(RIF_ID))
            if self._random.random() < 0.3:
                here = (*CORES, SOCKET, NODE)  # all that is as old, or older
            self._rif.post(Revoke(grant_id, here))

    def _resize(self) -> None:
        in_use = sorted(name for name in self._used if name != ELSEWHERE)
        name = self._random.choice(in_use or (NODE, SOCKET, *CORES))
        self._nursery.start_soon(self._take_away, name, self._random.choice(PAUSES_S))

    async def _take_away(self, name: ResourceId, away_s: float) -> None:
        assert self._rif is not None
        with suppress(RemoteError, PeerGone, trio.TooSlowError):
            await self._rif.call(RemoveResources((name,)), CALL_S)
            self._used.pop(name, None)
            self._given.pop(name, None)
            self._use_what_is_gone(name)
            if self._random.random() < 0.5:  # a grant of before has not come yet, and will
                self._number += 1
                grant_id = (EPOCH, self._number)
                self._rif.post(Revoke(grant_id, (name,)))
                self._grants.append((self._some_job(), grant_id, (name,)))
            await trio.sleep(away_s)
            for resource in HARDWARE:
                with suppress(RemoteError):  # it is there, or its parent is not
                    await self._rif.call(AddResources((resource,)), CALL_S)

    def _use_what_is_gone(self, name: ResourceId) -> None:
        """Submit under the last grant of a resource that is gone: to all it was for, or to a relative."""
        last = next((grant for grant in reversed(self._grants) if name in grant[2]), None)
        if last is not None:
            job, grant_id, names = last
            relatives = [near for near in _near(name) if near != name]
            self._submit(job, grant_id, self._random.choice((names, (self._random.choice(relatives),))))

    # The jobs that are played -------------------------------------------------------------------------------

    async def _be_job(
        self, job: JobId, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        peer, has_started = None, False
        with suppress(PeerGone, ConnectionProblem):
            connection = self._network.connect(self._address, role="job", name=job, expect="rif")
            async with connection as peer:
                self._peers[job] = peer
                self._open_job(job)
                has_started = True
                task_status.started()
                await peer.listen(partial(self._take, job))
        if not has_started:  # it tries again beside the others
            task_status.started()
        if self._peers.get(job) is peer and not self._is_over():  # it was sent away for what it has said
            self._nursery.start_soon(self._be_job, job)

    def _open_job(self, job: JobId) -> None:
        """Say who it is; what it had before is over."""
        for key in [key for key in self._open if key[0] == job]:
            del self._open[key]
        self._post(job, self._jobs[job])
        self._post(job, DefineCode(job, 1, b"code"))

    def _take(self, job: JobId, message: object) -> None:
        if isinstance(message, Finished):
            for outcome in message.outcomes:
                self._open.pop((job, (outcome.task_id, outcome.attempt)), None)

    def _post(self, job: JobId, message: object) -> None:
        if job in self._peers:
            self._peers[job].post(message)

    def _some_job(self) -> JobId:
        return self._random.choice(list(self._jobs))

    def _submit(self, job: JobId, grant_id: GrantId, names: tuple[ResourceId, ...]) -> None:
        submissions = []
        much = job == FETCHES
        for _ in range(self._random.choice((1, 1, 2, 3, 6))):
            self._task_id += 1
            options = self._random.choice(STAGED if much else OPTIONS)
            arguments: tuple[bytes, ...] = ()
            if options.stage_in and (much or self._random.random() < 0.5):
                size_bytes = self._random.choice((20, 60, 2 * INPUTS_BYTES_MAX))
                arguments = (encode_reference(Reference("data", size_bytes, (), 0, ())),)
            attempt = self._random.randint(1, 3)
            rank = (self._task_id * self._salt) % 5 - 2 if much and self._stage_ins_max > 1 else 0
            submissions.append(Submission(self._task_id, attempt, 1, arguments, options, rank=rank))
            key = (self._task_id, attempt)
            self._sent.append((job, names[0], key))
            self._open[job, key] = None
        class_of = self._random.choice(("", "", "", names[0].partition(".")[2].rstrip("012")))
        if self._random.random() < 0.03:
            class_of = "gpu"  # it has been told something else of the resource
        submit = Submit(job, grant_id, names, tuple(submissions), class_of)
        self._post(job, submit)
        if self._random.random() < 0.01:
            self._post(job, submit)

    def _grant(self) -> None:
        names = self._random.choice(SETS)
        is_free = all(self._used.get(near) is None for name in names for near in _near(name))
        if not is_free and self._random.random() < ORDERLY:
            self._more()
            return
        self._number += self._random.randint(1, 2)
        number = self._number + (1000 if self._random.random() < 0.02 else 0)  # such is given by nobody
        job, grant_id = self._some_job(), (EPOCH, number)
        if self._random.random() < FORGED:
            grant_id = (EPOCH, number + self._random.randint(1, AHEAD // 2))
            self._grants.append((job, grant_id, names))
        else:
            self._give(job, grant_id, names)
        self._used.update(dict.fromkeys(names, grant_id))
        held = tuple(name for name in names[1:] if name.startswith(RIF_ID))
        if held and self._random.random() < 0.5:
            self._post(job, Hold(job, grant_id, held))
        self._submit(job, grant_id, names)

    def _more(self) -> None:
        """Submit more under one of the last grants, that of its resources that is the newest."""
        if self._grants:
            self._submit(*self._random.choice(self._grants[-3:]))

    def _echo(self) -> None:
        """Submit under any grant that there ever was, maybe to a part or a relative of what it was for."""
        if self._grants:
            job, grant_id, names = self._random.choice(self._grants)
            if self._random.random() < 0.3:
                names = (self._random.choice(_near(names[0])),)
            self._submit(job, grant_id, names)

    def _hold(self) -> None:
        """A task elsewhere has a resource of the host, under a new grant or an old one."""
        name, old = self._random.choice(CORES), self._random.random() < 0.4
        if old and self._grants:
            job, grant_id, _ = self._random.choice(self._grants)
        else:
            self._number += 1
            job, grant_id = self._some_job(), (EPOCH, self._number)
            self._give(job, grant_id, (name,))
        self._post(job, Hold(job, grant_id, (name,)))

    def _some_sent(self) -> tuple[JobId, ResourceId, tuple[AttemptKey, ...]] | None:
        if not self._sent:
            return None
        job, name, _ = self._random.choice(self._sent[-6:])
        keys = [key for other, at, key in self._sent[-12:] if (other, at) == (job, name)]
        count = self._random.randint(1, len(keys))
        return job, name, tuple(sorted(self._random.sample(keys, count)))

    def _cancel(self) -> None:
        found = self._some_sent()
        if found is not None:
            self._post(found[0], Cancel(*found))

    def _take_back(self) -> None:
        found = self._some_sent()
        if found is not None:
            self._post(found[0], TakeBack(*found))

    def _release(self) -> None:
        """A job gives a grant back, as it may when nothing runs under it; here it may have forgotten that."""
        if self._used:
            grant_id = self._random.choice(sorted(self._used.values()))
            for name in [name for name, used in self._used.items() if used == grant_id]:
                del self._used[name]

    def _open_again(self) -> None:
        """A job connects again: before its connection is over, or after."""
        job = self._some_job()
        if self._random.random() < 0.5 and job in self._peers:
            self._peers[job].drop("it connects again")
        self._nursery.start_soon(self._be_job, job)

    def _close(self) -> None:
        """A job is over at this host: it is sent away, and then begins there anew."""
        job = self._some_job()
        if self._rif is not None:
            self._rif.post(CloseJobEverywhere(job))

    # The host -----------------------------------------------------------------------------------------------

    def _die(self) -> None:
        """A compute process dies."""
        if self._backend.computes:
            self._random.choice(self._backend.computes).die("killed by signal 9")

    def _run_short(self) -> None:
        """No compute process can be started for a while."""
        self._backend.short_until_s = trio.current_time() + self._random.choice((0.05, 0.3))

    async def _settle(self) -> None:
        """Wait until all that jobs have submitted has been reported to them."""
        for _ in range(SETTLE_LOOKS):
            if not self._open or self._is_over():
                return
            await trio.sleep(SETTLE_S / SETTLE_LOOKS)
        job, (task_id, attempt) = next(iter(self._open))
        what = f"task {task_id} of {job}"
        self._fail(Broken(f"{what}, attempt {attempt}, was not reported within {SETTLE_S:g} s", what))

    def _is_over(self) -> bool:
        """Whether a connection has ended that was to last, as one does when time jumps."""
        peers = [self._rif, *self._peers.values()]
        return any(peer is not None and peer.reason for peer in peers)


class _Staging:
    """Takes its time, fails now and then, maybe through no doing of the task."""

    def __init__(self, failed: Callable[[JobId, Submission], None], salt: int) -> None:
        self._failed = failed
        self._salt = salt

    async def stage_in(self, resource: Resource, job: JobId, submission: Submission) -> None:
        """Fetch nothing."""
        del resource
        await self._stage(job, submission, b"in")

    async def stage_out(
        self, resource: Resource, job: JobId, submission: Submission, outcome: Outcome
    ) -> Outcome | None:
        """Store nothing, and say for some that there is something else now."""
        del resource
        await self._stage(job, submission, b"out")
        return replace(outcome, values=((b"stored",),)) if submission.task_id % 2 else None

    async def _stage(self, job: JobId, submission: Submission, way: bytes) -> None:
        draw = crc32(b"%d %s" % (submission.task_id, way), self._salt)
        try:
            await trio.sleep((0.0, 0.001, 0.02, 0.1)[draw % 4])
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await trio.sleep((0.0, 0.01, 0.05)[draw % 3])
            raise
        if draw // 4 % 10 == 0:
            returned = draw // 40 % 2 == 0
            if not returned:
                self._failed(job, submission)
            raise StagingError("the data cannot be reached", returned=returned)


def _near(name: ResourceId) -> list[ResourceId]:
    """Return a resource with what contains it and what it contains."""
    parents = {resource.resource_id: resource.parents for resource in HARDWARE}

    def above(one: ResourceId) -> set[ResourceId]:
        return {one}.union(*map(above, parents.get(one, ())))

    return sorted({name, *above(name), *(other for other in parents if name in above(other))})


async def _no_load(_rif_id: str, _host: str, _post: Callable[[HostLoad], None]) -> None:
    """Say nothing of the load."""
