"""``python -m gspc_trio.testing.hostile``: whoever says something illegal loses its connection, and no more.

A hostile peer has the token and speaks as a RIF, a job, a client that controls, a client of a memory layer,
or a memory server, to everybody who listens to that. What it says is made by
:mod:`gspc_trio.testing.forged`.
Honest jobs run beside it. Their connections must last, and their results must be right.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random

import trio
import trio.lowlevel
from msgspec import Struct, field

from gspc_trio.components.job.messages import (
    ApplicationCall,
    AskWorkflow,
    CancelTask,
    ClosePort,
    GetDump,
    GetFunctions,
    GetJobStatus,
    GetMemory,
    GetNet,
    GetTask,
    PutToken,
    RetryFailed,
    StopJob,
    WaitJob,
)
from gspc_trio.components.job.shell.server import run_job
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.components.provision.strategy import RifOrder, Strategy
from gspc_trio.components.rif.messages import (
    AddResources,
    CannotStart,
    DagReport,
    Hold,
    Orphans,
    RifHello,
    WorkBack,
)
from gspc_trio.components.rif.shell.service import open_rif
from gspc_trio.components.rm.messages import Demand, Interrupt, Release, Revoked
from gspc_trio.components.rts.messages import (
    AddDag,
    Bootstrap,
    Explain,
    GetEndedJob,
    GetHostToResource,
    GetResources,
    GetStatus,
    JobRegistered,
    LeaveJob,
    ListJobs,
    RegisterJob,
    RemoveDag,
    SetWeight,
    StopRts,
    Teardown,
)
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.service import RtsService, open_rts_service
from gspc_trio.components.rts.state import Limits as RtsLimits
from gspc_trio.components.wire.registry import WIRE_TYPES
from gspc_trio.components.worker.messages import (
    AttemptStatus,
    Cancel,
    DefineCode,
    Finished,
    GetAttempt,
    OpenJob,
    Submission,
    Submit,
    TakeBack,
)
from gspc_trio.compute.code import encode_entry
from gspc_trio.core.ids import RifId
from gspc_trio.core.resources import Resource
from gspc_trio.core.staging import DropFile, ListFiles, ReadFile, WriteFile
from gspc_trio.core.task import TaskError
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import CLOSED_HERE, CLOSED_THERE, Peer
from gspc_trio.protocol.codec import DecodeError
from gspc_trio.protocol.envelope import Call, Reply
from gspc_trio.protocol.values import dumps, join, loads
from gspc_trio.records.facts import HostLoad
from gspc_trio.records.messages import RecordBatch, Watch
from gspc_trio.testing.determinism import seeded_trio, simulated_clock
from gspc_trio.testing.forged import ForgedMessages, Names
from gspc_trio.testing.hostile_memory import attack_layer
from gspc_trio.testing.simulated.backend import Behaviour, open_simulated_backend
from gspc_trio.testing.simulated.coded import CodedNetwork, HostilePeer, Listeners, raw_frame
from gspc_trio.testing.workload import TASK_SETTINGS, Workload, behave, in_order
from gspc_trio.workflow.engine import WorkflowEngine

TOKEN = b"the token that hostile peers have, too"
RTS, RIF, JOB = "rts", "rif-r1", "job"
"""Where honest ones listen."""

LIES_AT_ONCE = 16
"""So often a hostile peer speaks before time goes on."""

TURN_S = 0.002
PATIENCE_S = 600.0
TASKS = 40
EPOCH = 7

_FATAL: dict[str, Callable[[object], bool]] = {
    "control to rts": lambda said: (
        isinstance(said, StopRts | Bootstrap)
        or (isinstance(said, Teardown) and "r1" in said.rif_ids)
        or (isinstance(said, AddDag | RemoveDag) and said.rif_id == "r1")
    ),
    "control to job": lambda said: isinstance(said, StopJob | CancelTask),
    "job to rif": lambda said: (
        (isinstance(said, OpenJob) and said.data is not None)
        or (isinstance(said, WorkBack) and said.opening.data is not None)
    ),
}
"""What whoever has the token may say, and what honest ones would notice, or what starts real processes."""


class Tally(Struct):
    """What was said to whom, and what became of it.

    Attributes:
        said: role and listener -> messages.
        ended: connections that the other side has ended.
        finished: honest jobs that ended as they should.
    """

    said: Counter[str] = field(default_factory=Counter)
    ended: int = 0
    finished: int = 0


class Hostile:
    """A run-time system with an honest host and honest jobs, and hostile peers of every kind.

    Args:
        random: to draw from.
        number: how many messages the hostile peers are to say.
    """

    def __init__(self, random: Random, number: int) -> None:
        self.tally: Tally = Tally()
        self._random = random
        self._left = number
        self._listeners = Listeners()
        self._honest: list[Peer] = []
        self._network = CodedNetwork(TOKEN, self._listeners, "honest", self._honest.append)
        self._names = Names(
            _words(),
            [(EPOCH, number) for number in (1, 2, 3, 5, 10, 50)] + [(0, 0), (9, 9), (EPOCH, 1 << 40)],
        )
        self._messages = ForgedMessages(random, self._names)
        self._plan = self._each_once()
        self._begun, self._end = trio.Event(), trio.Event()
        self._known: dict[str, tuple[str, ...]] = {}

    def _each_once(self) -> Iterator[tuple[type, object]]:
        while True:
            yield from self._messages.every()

    async def run(self) -> None:
        """Send forged messages until all has been said; raises what an honest one has noticed."""
        strategies: dict[str, Strategy] = {
            "honest": _HonestRifs(self._network),
            "hostile": _HostileRifs(self),
        }
        limits = RtsLimits(retry_delays_s=(0.01,) * 100_000, bootstrap_timeout_s=2.0)
        opening = open_rts_service(
            self._network, listen=(f"memory:{RTS}",), strategies=strategies, limits=limits, epoch=EPOCH
        )
        async with opening as service:
            report = await service.bootstrap(["h1"], "honest", 2, {})
            assert report.started == {"h1": "r1"}, report
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_hostile_host, service)
                nursery.start_soon(self._work)
                await self._begun.wait()
                async with trio.open_nursery() as attacks:
                    for role, where in ROLES:
                        attacks.start_soon(self._attack, role, where)
                self._look()
                self._end = trio.Event()
                with trio.fail_after(PATIENCE_S):  # of simulated time, for what has begun
                    await self._end.wait()
                nursery.cancel_scope.cancel()

    def _know(self, what: str, *names: str) -> None:
        """Let hostile peers use these names."""
        self._known[what] = names
        self._names.texts = [*_words(), *(name for known in self._known.values() for name in known)]

    # Honest processes --------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Run one job after the other."""
        while True:
            workload = Workload.make(self._random, TASKS, TASK_SETTINGS[:1], stages_max=3)
            engine = WorkflowEngine(workload.net(), {}, dumps=dumps, loads=loads, join=join)
            settings = JobSettings(name="honest", listen=f"memory:{JOB}")
            connection = self._network.connect(f"memory:{RTS}", role="control", name="user", expect="rts")
            async with connection as peer:
                rts = RunTimeSystem(self._network, f"memory:{RTS}", peer)
                code = partial(_code_of, engine)
                async with run_job(engine, code, engine.outputs, rts, settings) as job:
                    self._begun.set()
                    self._know("job", *[job.job_id] * 3)
                    result = await job.wait()
                    self._look()
            found = {port: in_order(tokens) for port, tokens in result.outputs.items()}
            expected = workload.results()
            assert found == {port: expected[port] for port in found}, "an honest job has wrong results"
            assert all(port in found for port, tokens in expected.items() if tokens)
            self._honest.clear()
            self.tally.finished += 1
            self._end.set()

    def _look(self) -> None:
        """See that nobody has ended a connection of an honest one to another."""
        for peer in self._honest:
            if "hostile" not in peer.remote:
                assert peer.reason in ("", CLOSED_HERE, CLOSED_THERE), (
                    f"an honest connection has ended: {peer}"
                )

    # Hostile peers -----------------------------------------------------------------------------------------

    async def _keep_hostile_host(self, service: RtsService) -> None:
        """Have a host with a hostile RIF, again and again."""
        while True:
            there = {rif.host for rif in service.machine.rifs}
            if "hostile" not in there:
                await service.bootstrap(["hostile"], "hostile", 2, {})
            await trio.sleep(0.1)

    def another(self, role: str) -> tuple[type, object] | None:
        """Return what is said next, None when all has been said."""
        if self._left <= 0:
            return None
        self._left -= 1
        self.tally.said[role] += 1
        if self._random.random() < 0.2:
            return next(self._plan)
        return self._messages.some(_SAID_BY.get(role) or WIRE_TYPES)

    async def _attack(self, role: str, where: str) -> None:
        """Connect again and again, and say what one must not, until all has been said."""
        number = 0
        while self._left > 0:
            number += 1
            network = CodedNetwork(TOKEN, self._listeners, f"hostile {role} {number}")
            name = self._random.choice(("hostile", "r1", "j1", "honest"))
            try:
                hostile = await network.connect_hostile(where, role, name)
            except ConnectionProblem:
                await trio.sleep(TURN_S)
                continue
            await self._introduce(hostile, role, where)
            await self.speak(hostile, f"{role} to {where.partition('-')[0]}", self._random.randint(1, 60))
            hostile.leave()
            await trio.sleep(TURN_S)

    async def _introduce(self, hostile: HostilePeer, role: str, where: str) -> None:
        """Say the first words, mostly."""
        if self._random.random() < 0.2:
            return
        self._know("a hostile peer", *["hostile"] * USUAL)
        if role == "job" and where == RTS:
            hostile.call_in_order(RegisterJob("hostile", 1, "hostile"))
        elif role == "job":
            hostile.say_in_order(OpenJob("hostile"))
            hostile.say_in_order(DefineCode("hostile", 1, b"code"))
            if self._random.random() < 0.3:  # under a grant that it was never given
                where = self._random.choice(("r1.core0", "r1.core1", "r1.node"))
                grant_id, task = self._random.choice(self._names.grants), Submission(1, 1, 1)
                hostile.say_in_order(Submit("hostile", grant_id, (where,), (task,)))
        elif role == "rif":
            hostile.say_in_order(RifHello("hostile", 1, 1, "hostile", "memory:hostile", ()))
        await trio.lowlevel.checkpoint()

    async def speak(self, hostile: HostilePeer, role: str, most: int) -> None:
        """Say so many messages, or until the other side has had enough."""
        fatal = _FATAL.get(role, _nothing_is)
        for count in range(most):
            if hostile.reason:
                self.tally.ended += 1
                return
            forged = self.another(role)
            if forged is None:
                return
            kind, fields = forged
            if not fatal(_decoded(self._network, kind, fields)):
                hostile.say(kind, fields, call=self._random.random() < 0.5)
            self._answer(hostile)
            await trio.sleep(TURN_S if count % LIES_AT_ONCE == 0 else 0)

    def _answer(self, hostile: HostilePeer) -> None:
        """Answer what the hostile peer was asked, one way or another."""
        for item in hostile.heard:
            if isinstance(item, Call) and isinstance(item.body, AddResources) and self._random.random() < 0.9:
                hostile.say_in_order(Reply(item.call_id, DagReport(())))
            elif isinstance(item, Reply) and isinstance(item.body, JobRegistered):
                self._know("job of a hostile peer", *[item.body.job] * USUAL)
            elif isinstance(item, Call):
                hostile.say(*self._messages.some(WIRE_TYPES), answers=item.call_id)
        hostile.heard.clear()

    async def be_rif(self, order: RifOrder) -> str:
        """Be a hostile RIF: to its run-time system, and to the jobs that come."""
        network = CodedNetwork(TOKEN, self._listeners, f"hostile {order.rif_id} {order.incarnation}")
        address = f"hostile-{order.rif_id}"
        async with trio.open_nursery() as nursery:
            hostile = await network.connect_hostile(RTS, "rif", order.rif_id)
            nursery.start_soon(self._listeners.serve_hostile, address, self._attack_jobs)
            node = Resource(f"{order.rif_id}.node", "odd")
            below = Resource(f"{order.rif_id}.core0", "odder", (node.resource_id,))
            hello = (order.rif_id, order.incarnation, 1, order.host, f"memory:{address}", (node, below))
            self._know("rif", *[order.rif_id] * USUAL, *[node.resource_id, below.resource_id] * 5)
            hostile.say_in_order(RifHello(*hello))
            quiet_turns = self._random.choice((0, 0, 100))  # with some jobs come, to be sent forged messages
            while not hostile.reason and self._left > 0:
                await trio.sleep(TURN_S)
                self._answer(hostile)
                quiet_turns -= 1
                if quiet_turns < 0:
                    await self.speak(hostile, "rif to rts", self._random.randint(1, 60))
            hostile.leave()
            nursery.cancel_scope.cancel()
        return hostile.reason or "it has said all"

    async def _attack_jobs(self, hostile: HostilePeer) -> None:
        """Lie to a job that has come to a RIF."""
        await self.speak(hostile, "rif to job", self._random.randint(1, 60))
        await trio.sleep(TURN_S)
        hostile.leave()


class _HonestRifs:
    """Starts RIFs that do what they should, with cores that compute nothing but workloads."""

    def __init__(self, network: CodedNetwork) -> None:
        self._network = network

    async def run(self, order: RifOrder) -> str:
        node = Resource(f"{order.rif_id}.node", "node")
        cores = [Resource(f"{order.rif_id}.core{n}", "core", (node.resource_id,)) for n in range(order.cores)]
        async with (
            open_simulated_backend(_compute) as backend,
            open_rif(
                self._network,
                rif_id=order.rif_id,
                incarnation=order.incarnation,
                host=order.host,
                hardware=(node, *cores),
                backend=backend,
                listen=f"memory:{RIF}",
                rts=f"memory:{RTS}",
                load=_report_load,
            ) as rif,
        ):
            return await rif.wait_ended()


class _HostileRifs:
    """Starts hostile RIFs."""

    def __init__(self, hostile: Hostile) -> None:
        self._hostile = hostile

    async def run(self, order: RifOrder) -> str:
        return await self._hostile.be_rif(order)


ROLES: Sequence[tuple[str, str]] = (
    ("rif", RTS), ("job", RTS), ("control", RTS), ("enrol", RTS), ("job", RIF), ("control", JOB),
    ("stranger", RTS),
)  # fmt: skip
"""Hostile roles, and to whom each connects. Hostile RIFs that a run-time system has started come besides."""


_SAID_BY: dict[str, Sequence[type]] = {
    "rif to rts": (Revoked, RecordBatch, CannotStart, RifHello),
    "rif to job": (Finished, Finished, Orphans, AttemptStatus, ReadFile, WriteFile, DropFile, ListFiles),
    "job to rts": (Demand, Demand, Release, Interrupt, LeaveJob, RegisterJob),
    "job to rif": (
        OpenJob, WorkBack, DefineCode, Submit, Submit, Submit, Cancel, TakeBack, Hold, GetAttempt,
    ),
    "control to rts": (
        GetStatus, Teardown, AddDag, RemoveDag, ListJobs,
        GetHostToResource, Watch, Explain, SetWeight,
        GetResources, GetEndedJob,
    ),
    "control to job": (
        GetJobStatus, WaitJob, ApplicationCall, Watch, GetTask,
        GetNet, GetMemory, CancelTask, RetryFailed, GetFunctions,
        GetDump, PutToken, AskWorkflow, ClosePort,
    ),
}  # fmt: skip
"""What is said more often than the rest, for it has a meaning there."""

USUAL = 20
"""So often does a hostile peer's own name stand among the other words."""


def _words() -> list[str]:
    """Return what looks right in a message."""
    words = "hostile core node odd core0 memory:nowhere ws:// hostile lose wait refuse impossible interrupted"
    states = "idle busy lost stopped running finished failed up down removed added ready"
    ids = "r1 r1.core0 r1.core0 r1.core0 r1.core1 r1.core1 r1.node r1. h1 j1 j2 r2 r2.a r2.b"
    return ["", *words.split(), *states.split(), *ids.split()]


def _nothing_is(_said: object) -> bool:
    return False


def _decoded(network: CodedNetwork, kind: type, fields: object) -> object:
    """Return what the other side will take this for, None for nothing."""
    try:
        return network.codec.decode_batch(raw_frame(kind, fields))[0]
    except DecodeError:
        return None


def _code_of(engine: WorkflowEngine, code_id: int) -> bytes:
    return encode_entry(engine.code_table[code_id])


def _compute(submission: Submission, code: bytes) -> Behaviour:
    """Compute a task of a workload, and nothing else."""
    try:
        return behave(submission, code, scale=0.1)
    except Exception as error:  # whatever is made of a hostile peer's code and arguments
        return Behaviour(0.001, error=TaskError(type(error).__name__, "forged"))


async def _report_load(rif_id: RifId, host: str, post: Callable[[HostLoad], None]) -> None:
    post(HostLoad(trio.current_time(), rif_id, host, 0.5, 2, 0.5, 1 << 30, 1 << 32))
    await trio.sleep_forever()


def attack(seed: int, number: int) -> Tally:
    """Let hostile peers say so many messages; raise what an honest one has noticed."""
    hostile = Hostile(Random(seed), number)
    with seeded_trio(seed):  # a seed that has found something mostly finds it again
        trio.run(hostile.run, clock=simulated_clock())
    return hostile.tally


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gspc_trio.testing.hostile", description="Lie to everybody, in every role."
    )
    parser.add_argument("--messages", type=int, default=10_000, help="how many, in all")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--round", type=int, default=10_000, help="messages of one round, with one seed")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    begin_s, said, seed = time.monotonic(), 0, chosen.seed
    while said < chosen.messages:
        number = min(chosen.round, chosen.messages - said)
        tally = attack(seed, number - number // 3)
        layer = attack_layer(seed, number // 3)
        tally.said["memory layer"] = number // 3
        tally.ended += layer.ended
        tally.finished += layer.kept
        said, seed = said + sum(tally.said.values()), seed + 1
        spent_s = time.monotonic() - begin_s
        print(
            f"seed {seed - 1}: {said} messages in {spent_s:.0f} s, {said / spent_s:.0f} a second; "
            f"{tally.ended} connections ended, {tally.finished} honest jobs and puts finished, "
            + ", ".join(f"{role} {count}" for role, count in sorted(tally.said.items())),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
