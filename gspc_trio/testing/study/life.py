"""A study that is simulated from a seed: a launcher, its server and clients, and all that may go wrong."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from random import Random

import trio
from trio.testing import MockClock

from gspc_trio.components.launcher.events import (
    CommandExited,
    EndClient,
    LauncherAction,
    LauncherEvent,
    NewConnection,
    Signal,
    SubmitToEngine,
)
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.options import LauncherOptions
from gspc_trio.components.provision.shell.commands import COMMAND_TIMEOUT_S
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.checkers.studies import StudyChecks
from gspc_trio.testing.determinism import Gate
from gspc_trio.testing.faults import STUDY_KINDS, Fault, Trigger
from gspc_trio.testing.observer import Observer
from gspc_trio.testing.options import Options
from gspc_trio.testing.simulated.batch import BatchSystem, JobChecks, QueuedJob
from gspc_trio.testing.simulated.process import SimulatedProcess
from gspc_trio.testing.study.launcher import ServerLink, SimulatedLauncher
from gspc_trio.testing.study.links import Link
from gspc_trio.testing.study.programs import SimulatedClients, SimulatedServer

STEPS = {"launcher": 300, "server": 150, "client": 20, "queue": 100}
"""How many steps each role makes in a study, about."""

FINISH_S = 900.0
"""Simulated seconds after the last fault within which a study has ended."""

CLIENTS_MAX = 16
START_S = (0.0, 0.1, 2.0)
"""How long a server takes until it connects, at most."""

SEEN_S = (0.0, 0.5, 5.0)
"""How long it takes until the launcher sees that a command has ended, at most."""

INTERRUPTED = 0.4
"""So many studies may get a signal."""

UNINTERRUPTED_KINDS = {kind: roles for kind, roles in STUDY_KINDS.items() if kind != "signal"}

UNFORGIVING = 0.1
"""So many studies have no fault tolerance."""

SAYS_STATUS = 0.3
"""In so many cases who is killed with its job leaves an exit status."""


class StudySystem(BatchSystem):
    """A batch system whose jobs are servers and clients.

    Args:
        study: whose.
        random: to draw from.
        checks: told of each job.
    """

    def __init__(self, study: StudySimulation, random: Random, checks: JobChecks) -> None:
        nodes = random.randint(2, 6)
        super().__init__(random, nodes, study.start, checks, lambda: study.step("queue", "the batch system"))
        self._study = study

    def launch(self, job: QueuedJob, node: int, host: str, *, is_late: bool = False) -> SimulatedProcess:
        """See BatchSystem."""
        del node
        return self._study.launch(job, host, 5.0 if is_late else 0.0)


class StudySimulation:
    """A run; its interface is that of :class:`~gspc_trio.testing.simulation.Simulation`."""

    def __init__(self, seed: int, options: Options, clock: MockClock) -> None:
        del clock
        random = Random(f"the study of {seed}")
        kinds = STUDY_KINDS if random.random() < INTERRUPTED else UNINTERRUPTED_KINDS
        drawn = options.faults.draw(random, STEPS, kinds)
        self.schedule: tuple[Fault, ...] = drawn if options.schedule is None else options.schedule
        self.happened: list[str] = []
        self.failure: BaseException | None = None
        self.observer: Observer = Observer(lambda: self._last_fault_s, lambda: 0)
        self._random = random
        self._trigger = Trigger(self.schedule)
        self._scope = trio.CancelScope()
        self._last_fault_s = 0.0
        self._unclear: list[float] = []
        self._options = LauncherOptions(
            scheduler="slurm",
            job_limit=random.randint(2, 6),
            group_size=random.randint(1, 3),
            job_update_interval_s=random.choice((2.0, 10.0, 30.0)),
            fault_tolerance=random.random() >= UNFORGIVING,
        )
        self._to_do = set(range(1, random.randint(2, CLIENTS_MAX)))
        self._checks = StudyChecks(self._options, self.fail, self._was_unclear)
        self._asked: dict[str, SubmitToEngine] = {}
        self._clients: dict[SimulatedProcess, tuple[SubmitToEngine, SimulatedClients]] = {}
        self._ended_clients: set[tuple[int, int]] = set()
        """Job and client: those that are not to begin any more."""
        self._servers: dict[SimulatedProcess, ServerLink] = {}
        self._delay_s = 0.0
        self._connections, self._numbers = count(1), count(1)
        self._nursery: trio.Nursery
        self._process: SimulatedProcess
        self._system: StudySystem
        self._launcher: SimulatedLauncher

    def close(self) -> None:
        """Nothing outlives trio."""

    def fail(self, error: BaseException) -> None:
        """End the run: something does not hold."""
        self.failure = self.failure or error
        self._scope.cancel()

    def saw(self, machine: object, event: object, now: float, actions: Sequence[object]) -> None:
        """No machine says by itself what it sees (see MachineObserver)."""

    def holds(self, queue: object) -> None:
        """There is no queue."""

    def start(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task in the name of no process."""
        self._nursery.start_soon(function, *arguments)

    # The run ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run to the end."""
        Gate.install()
        with self._scope:
            async with trio.open_nursery() as self._nursery:
                self._system = StudySystem(self, self._random, self._checks)
                process = self._process = self._new_process("launcher", "launcher", "head")
                self._launcher = SimulatedLauncher(
                    process, self._options, self._system, self._saw, self._ask, self._end_client
                )
                self._nursery.start_soon(self._watch_time)
                await process.run(self._launcher.run)
                if process.error is not None:
                    raise process.error
                self._nursery.cancel_scope.cancel()

    async def _watch_time(self) -> None:
        while True:
            due_s = self._last_fault_s + FINISH_S
            if trio.current_time() >= due_s:
                self.fail(Broken(f"the study has not ended {FINISH_S:g} s after the last fault"))
                return
            await trio.sleep_until(due_s)

    def _saw(self, machine: Launcher, event: LauncherEvent, actions: Sequence[LauncherAction]) -> None:
        now = trio.current_time()
        try:
            self.observer.saw(self._process, machine, event, now, actions)
            self._checks.saw(event, now, actions)
        except Exception as error:
            self.fail(error)
            raise
        self.step("launcher", "the launcher")

    # Jobs ---------------------------------------------------------------------------------------------------

    def _new_process(self, name: str, role: str, host: str) -> SimulatedProcess:
        return SimulatedProcess(f"{name}.{next(self._numbers)}", role, host, self, lambda _: None)

    def _ask(self, action: SubmitToEngine) -> None:
        self._asked[action.name] = action

    def launch(self, job: QueuedJob, host: str, late_s: float) -> SimulatedProcess:
        """Start the process of a job, which begins after a while."""
        asked = self._asked[job.name]
        role = "client" if asked.client_ids else "server"
        process = self._new_process(job.name, role, host)

        async def main() -> None:
            await trio.sleep(late_s)
            if asked.client_ids:
                await self._run_clients(process, asked)
            else:
                await self._run_server(process, asked, job.job_id)

        self._nursery.start_soon(process.run, main)
        return process

    async def _run_server(self, process: SimulatedProcess, asked: SubmitToEngine, job_id: str) -> None:
        delay_s, self._delay_s = self._delay_s, 0.0
        await trio.sleep(delay_s + self._random.uniform(0.0, self._random.choice(START_S)))
        server = SimulatedServer(self._random, self._options.group_size, self._to_do)

        def ends() -> None:
            link = self._servers.pop(process)
            if process.dark:
                link.hold(math.inf)
            elif process.killed and self._random.random() < 0.5:
                link.cut()
            else:
                link.up.close()

        def connect() -> ServerLink:
            link = self._servers[process] = self._new_link(process.name)
            self._launcher.connect(link)
            link.say(NewConnection(link.number, asked.incarnation, self._random.choice(("", job_id))))
            return link

        self._servers[process] = self._new_link(process.name)
        process.on_kill.append(ends)
        await server.run(connect)
        if process.alive:
            ends()
            process.on_kill.clear()
            self._exited(asked, None, 0)

    async def _run_clients(self, process: SimulatedProcess, asked: SubmitToEngine) -> None:
        def exited(client_id: int, status: int) -> None:
            if process.alive:
                self._exited(asked, client_id, status)

        def killed() -> None:
            del self._clients[process]
            if not process.dark and self._random.random() < SAYS_STATUS:
                for client_id in clients.running:
                    self._exited(asked, client_id, 143)

        clients = SimulatedClients(self._random, asked, exited)
        self._clients[process] = asked, clients
        process.on_kill.append(killed)
        self.step("client", process.name)
        for client_id, scope in clients.running.items():
            if (asked.uid, client_id) in self._ended_clients:
                scope.cancel()
        await clients.run()
        if process.alive:
            del self._clients[process]
            process.on_kill.clear()

    def _exited(self, asked: SubmitToEngine, client_id: int | None, status: int) -> None:
        """The command of a client, or of a server, has ended; the launcher sees that after a while."""
        self._checks.exited(asked.name, client_id, status)
        is_alone = len(asked.client_ids) == 1 and self._random.random() < 0.5
        event = CommandExited(asked.uid, status, None if is_alone else client_id)
        self._launcher.exited(event, self._random.uniform(0.0, self._random.choice(SEEN_S)))

    def _end_client(self, action: EndClient) -> None:
        self._ended_clients.add((action.job_uid, action.client_id))
        for asked, clients in self._clients.values():
            if asked.uid == action.job_uid and action.client_id in clients.running:
                clients.running[action.client_id].cancel()

    def _new_link(self, name: str) -> ServerLink:
        return Link(next(self._connections), self._random, lambda: self.step("server", name))

    # Faults -------------------------------------------------------------------------------------------------

    def step(self, role: str, name: str) -> None:
        """Count a step of a role, and let happen what is due."""
        for fault in self._trigger.step(role):
            self._nursery.start_soon(self._happen, fault, name)

    async def _happen(self, fault: Fault, name: str) -> None:
        now = trio.current_time()
        self._last_fault_s = max(self._last_fault_s, now + fault.lasts_s)
        self.happened.append(f"{now:.6f} s: {fault}: {name}")
        if fault.role == "queue":
            if fault.kind == "unclear":
                self._unclear.append(now + fault.lasts_s + 2 * COMMAND_TIMEOUT_S)
            self._system.happen(fault)
        elif fault.role == "launcher":
            self._happen_to_launcher(fault)
        elif fault.kind in ("kill", "crash"):
            there = self._servers if fault.role == "server" else self._clients
            if there:
                self._random.choice(list(there)).kill(silently=fault.kind == "crash")
        elif self._servers:
            link = self._random.choice(list(self._servers.values()))
            if fault.kind == "cut":
                link.cut()
            elif fault.kind == "partition":
                self._random.choice((link.up, link.down)).hold(now + fault.lasts_s)
            else:
                link.hold(now + fault.lasts_s)

    def _happen_to_launcher(self, fault: Fault) -> None:
        if fault.kind == "delay":
            self._delay_s = fault.lasts_s
        elif fault.kind == "resume":
            self._launcher.kill(fault.lasts_s)
        elif fault.kind == "signal":
            self._launcher.give(Signal(self._random.choice((2, 15))))
        else:
            servers = [asked.incarnation for asked in self._asked.values() if not asked.client_ids]
            is_known = fault.kind == "return" and servers
            link = self._new_link("somebody")
            self._launcher.connect(link)
            link.say(NewConnection(link.number, self._random.choice(servers) if is_known else None))

    def _was_unclear(self, since_s: float) -> bool:
        return any(until_s >= since_s for until_s in self._unclear)
