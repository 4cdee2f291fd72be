"""One run of a simulated cluster from a seed: random work, random faults, the result of a plain loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any, Protocol

import trio
from msgspec.structs import replace
from trio.testing import MockClock

from gspc_trio.components.rts.shell.saved import RESUME_GRACE_S
from gspc_trio.components.rts.state import RifState
from gspc_trio.nursery.scopes.observe import Queue
from gspc_trio.nursery.scopes.scope import leaves
from gspc_trio.policies.placement import PLACEMENTS
from gspc_trio.policies.plans.by_name import PLANS
from gspc_trio.policies.queues import QUEUES
from gspc_trio.protocol.limits import DEFAULT_LIMITS, Limits
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.cluster import Cluster, open_cluster
from gspc_trio.testing.coallocation_requests import coallocation_broken
from gspc_trio.testing.determinism import Gate, rare_collections, seeded_trio, simulated_clock
from gspc_trio.testing.drill import Drill
from gspc_trio.testing.fault_injection import FaultInjector
from gspc_trio.testing.faults import LATER_KINDS, LATEST_KINDS, NEWER_KINDS, SITE_KINDS, Fault, Trigger
from gspc_trio.testing.job_life import DoomedLife, HastyLife, JobLife, is_expected
from gspc_trio.testing.layer.life import LayerLife
from gspc_trio.testing.locations import locations_broken
from gspc_trio.testing.managers import managers_broken
from gspc_trio.testing.observer import Observer
from gspc_trio.testing.options import Options, Report, crowding, steps_of
from gspc_trio.testing.simulated.anomalies import draw_anomalies
from gspc_trio.testing.simulated.backend import Run, SimulatedBackend, SimulatedCompute
from gspc_trio.testing.simulated.batch import BlockSystem
from gspc_trio.testing.simulated.chains import RANGED_EVERY, more_lives
from gspc_trio.testing.simulated.process import RUNNING, SimulatedProcess, first_of
from gspc_trio.testing.simulated.rts_memory import RtsMemory
from gspc_trio.testing.simulated.wires import BUFFER_BYTES
from gspc_trio.testing.study.life import StudySimulation
from gspc_trio.testing.workload import (
    KINDS,
    KINDS_OUTSIDE,
    TASK_S,
    WIDE_MEMORY_BYTES,
    Workload,
    behave,
    settings_for,
)

FINISH_S = 300.0
"""Simulated seconds after the last fault within which everything has to be finished (invariant 10)."""

KEEPER_S = 5.0
"""Simulated seconds between two looks for resources that are missing."""

SLACK = 8.0
"""How much longer than work that keeps one core of each host busy everything may take besides."""

LAYERED = 0.2
"""In so many of the runs jobs keep large values in a memory layer."""

WIDE = 0.5
"""In so many of the runs without a memory layer tasks ask for more than cores and nodes."""

WIDE_KINDS: Mapping[str, tuple[str, ...]] = {"kill": ("rts", "rif", "job"), "shrink": ("rif",)}
"""What happens in such a run besides."""

DOOMED = 0.5
"""In so many of these there is a job that must fail."""

VARIED = 0.125
"""In so many of the runs some tasks have variants."""

PLACED = 0.4
"""In so many of these hosts have features, tasks ask for them and for ranks, and jobs for placements."""

HASTY = 0.5
"""In so many of these there is a job that does not wait for what is not there."""

DRILLED = 0.25
"""In so many of the runs there is a host that is drilled."""

LATER = 0.5
"""In so many of the runs kinds of faults that came later may happen."""

LATEST = 0.3
"""In so many of the runs those that came later still."""

NEWER = 0.4
"""In so many of the runs kinds of faults that came later still may happen."""

UNPROVED_MAX = 8
"""Connections that may be unproved at a listener in such a run."""

SITED = 0.2
"""In so many of the runs without a memory layer there is a site with a batch system."""

QUEUED = 0.3
"""Of the jobs so many have queues of resources."""

PLANNED = 0.3
"""Of the others so many have a plan."""

REST_S = 120.0
"""Simulated seconds within which all is back, and nothing left, when everything is finished.

A host that is just being started may not come up, and then be started twice; each takes 30 s to notice.
"""


class Simulation:
    """A run; see :func:`simulate`."""

    def __init__(self, seed: int, options: Options, clock: MockClock) -> None:
        self._clock = clock
        random = Random(seed)
        self.options = options
        work_s = options.jobs * options.tasks * options.task_s
        self._finish_s = FINISH_S + SLACK * work_s / options.hosts
        self._cluster_seed = random.getrandbits(64)
        layered = options.faults.layers and Random(self._cluster_seed + 3).random() < LAYERED
        self._layers: LayerLife | None = None
        if layered:
            first, later, latest = (Random(self._cluster_seed + number) for number in (4, 6, 7))
            self._layers = LayerLife(first, later, latest, options.faults, crowding(options))
        kinds, padded = (KINDS_OUTSIDE, random.random() < 0.5) if layered else (KINDS, False)
        wide = Random(self._cluster_seed + 8)
        self._is_wide = options.faults.wide and not layered and wide.random() < WIDE
        settings = self._draw_settings()
        workloads = [
            Workload.make(random, options.tasks, settings, kinds=kinds, padded=padded)
            for _ in range(options.jobs)
        ]
        varied = Random(self._cluster_seed + 15)
        if options.faults.wide and varied.random() < VARIED:
            workloads = [workload.with_variants(varied) for workload in workloads]
        steps = steps_of(options)
        drawn = options.faults.draw(random, steps)
        for number, share, kinds_drawn in ((5, LATER, LATER_KINDS), (11, LATEST, LATEST_KINDS)):
            own = Random(self._cluster_seed + number)
            if own.random() < share:
                drawn += options.faults.draw(own, steps, kinds_drawn)
        if self._layers is not None:
            drawn += self._layers.draw(options.faults, steps["rif"])
        if self._is_wide:
            drawn += options.faults.draw(wide, steps, WIDE_KINDS)
        self._buffer_bytes, self._limits = BUFFER_BYTES, DEFAULT_LIMITS
        if options.faults.tight and random.random() < 0.5:
            self._buffer_bytes = random.choice((2000, 20_000))
            self._limits = Limits(
                calls_max=random.choice((1, 3)),
                frame_items_max=random.choice((1, 5, 1024)),
                inbox_items_max=10,
            )
        newer = Random(self._cluster_seed + 10)
        if newer.random() < NEWER:
            drawn += options.faults.draw(newer, steps, NEWER_KINDS)
            self._limits = replace(self._limits, unproved_max=UNPROVED_MAX)
        self._site = None if layered else self._draw_site()
        if self._site is not None:
            drawn += options.faults.draw(self._site, steps, SITE_KINDS)
        self._anomalies, found = draw_anomalies(self._cluster_seed, options, self._site is not None)
        drawn += found
        self.schedule: tuple[Fault, ...] = drawn if options.schedule is None else options.schedule
        self._trigger = Trigger(self.schedule)
        self.happened: list[str] = []
        self.observer: Observer = Observer(lambda: self._last_fault_s, self._things, options.full_checks)
        self.failure: BaseException | None = None
        self._scope = trio.CancelScope()
        self._last_fault_s = 0.0
        self._lives = self._make_lives(workloads)
        if self._is_wide and wide.random() < DOOMED:
            self._lives.append(DoomedLife(self, "doomed1", wide.random() < 0.5, wide))
        hasty = Random(self._cluster_seed + 12)
        if self._is_wide and hasty.random() < HASTY:
            self._lives.append(HastyLife(self, "hasty1", hasty, max(1, options.tasks // 4)))
        stateful = options.faults.states and Random(self._cluster_seed + 2).random() < 0.5
        self._memory = RtsMemory(Random(self._cluster_seed + 9)) if stateful else None
        self.observer.grace_s = RESUME_GRACE_S if stateful else 0.0
        self._running = set(self._lives)
        self.rts_ended: trio.Event = trio.Event()
        self.cluster: Cluster
        self.injector: FaultInjector

    def _draw_settings(self) -> Sequence[Mapping[str, Any]]:
        """Return what tasks may ask for, and note whether there are features, ranks and placements."""
        random = Random(self._cluster_seed + 16)
        is_placed = self._is_wide and random.random() < PLACED
        self._placed: Random | None = random if is_placed else None
        return settings_for(self.options.hosts, self.options.cores, wide=self._is_wide, placed=is_placed)

    def _draw_site(self) -> Random | None:
        """Return the randomness of the batch system of a run that has one."""
        random = Random(self._cluster_seed + 14)
        return random if self.options.faults.sites and random.random() < SITED else None

    def _make_lives(self, workloads: Sequence[Workload]) -> list[JobLife]:
        random, lives = Random(self._cluster_seed + 1), []
        queues, plans = Random(self._cluster_seed + 15), Random(self._cluster_seed + 21)
        for number, workload in enumerate(workloads):
            journaled = self.options.faults.journals and random.random() < 0.5
            own = Random(random.getrandbits(64))
            name, layers = f"job{number + 1}", self._layers
            placement = "" if self._placed is None else self._placed.choice(("", *PLACEMENTS))
            assign = QUEUES if queues.random() < QUEUED else ""
            plan = plans.choice(PLANS) if plans.random() < PLANNED and not assign else ""
            said = {"assign": assign, "placement": placement, "plan": plan}
            lives.append(JobLife(self, name, workload, own, journaled=journaled, layers=layers, **said))
        return lives + more_lives(self, self.options, Random(self._cluster_seed + 23))

    def close(self) -> None:
        """Give back what outlives trio."""
        if self._layers is not None:
            self._layers.world.close()

    # What is seen ----

    def saw(self, machine: object, event: object, now: float, actions: Sequence[object]) -> None:
        """Take an event of a machine (see :class:`~gspc_trio.nursery.scopes.observe.MachineObserver`)."""
        process = RUNNING.get()
        assert process is not None
        if not process.alive:
            return
        try:
            self.observer.saw(process, machine, event, now, actions)
        except Exception as error:
            self.fail(error)
            raise
        process.step()

    def holds(self, queue: Queue) -> None:
        """Know of a queue."""
        process = RUNNING.get()
        assert process is not None
        self.observer.bounds.holds(process, queue)

    def _things(self) -> int:
        """Return the number of processes and ends of connections."""
        processes = self.cluster.processes
        return len(processes) + sum(len(process.ends) for process in processes)

    def fail(self, error: BaseException) -> None:
        """End the run: something does not hold."""
        self.failure = self.failure or error
        self._scope.cancel()

    def step(self, process: SimulatedProcess) -> None:
        """Count a step of a process, and let happen what is due."""
        for fault in self._trigger.step(process.role):
            self._happens(fault, process.name)
            self.injector.happen(fault, process)

    def _happens(self, fault: Fault, name: str) -> None:
        self._last_fault_s = max(self._last_fault_s, trio.current_time() + fault.lasts_s)
        self.observer.silence.happens(fault.kind, fault.lasts_s, trio.current_time())
        self.happened.append(f"{trio.current_time():.6f} s: {fault}: {name}")

    # The run ----

    async def run(self) -> None:
        """Run to the end."""
        before = living_tasks()
        gate = Gate.install()
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_time)
                if self._layers is not None:
                    nursery.start_soon(self._layers.collect)
                async with open_cluster(
                    self._cluster_seed,
                    hosts=self.options.hosts,
                    cores=self.options.cores,
                    behave=partial(behave, scale=self.options.task_s / TASK_S),
                    observer=self,
                    on_step=self.step,
                    latency_s=self.options.latency_s,
                    buffer_bytes=self._buffer_bytes,
                    limits=self._limits,
                    anomalies=self._anomalies,
                    memory=self._memory,
                    layers=self._layers.world if self._layers is not None else None,
                    host_memory_bytes=WIDE_MEMORY_BYTES if self._is_wide else 0,
                    featured=self._placed is not None,
                ) as self.cluster:
                    self.injector = FaultInjector(
                        self.cluster,
                        self._clock,
                        gate,
                        nursery,
                        Random(self._cluster_seed),
                        self.observer.overtaken,
                        self.fail,
                    )
                    self.cluster.wires.on_broken = self.fail
                    self.cluster.on_staging_failed = self.observer.work.staging_failed
                    self.cluster.on_backend = self._watch_backend
                    self.cluster.on_end = self._ended
                    self.cluster.on_killed = lambda process: self.observer.gone(process, trio.current_time())
                    if self._site is not None:
                        self._open_batch_system(self._site)
                    await self._see_through()
                    await self._come_to_rest()
                nursery.cancel_scope.cancel()
        if self.failure is None and living_tasks() != before:
            raise Broken(f"{living_tasks() - before} trio tasks are left")

    def _open_batch_system(self, random: Random) -> None:
        cluster = self.cluster
        batch = cluster.batch = BlockSystem(
            random, cluster.start_outside, cluster.spawn, cluster.run_block_rif, self.fail, self._step_batch
        )
        batch.checks.is_kept = self._memory is not None

    def _step_batch(self) -> None:
        """Count a command of the batch system, and let happen what is due."""
        assert self.cluster.batch is not None
        for fault in self._trigger.step("batch"):
            self._happens(fault, "the batch system")
            self.cluster.batch.happen(fault)

    async def _see_through(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_rts)
            if self._layers is not None:
                nursery.start_soon(self._layers.keep)
            nursery.start_soon(self._keep_resources)
            async with trio.open_nursery() as working:
                if self._layers is not None:
                    working.start_soon(self._layers.keep_users, self.fail)
                random = Random(self._cluster_seed + 13)
                if self.options.faults.drills and random.random() < DRILLED:
                    failed = self.observer.work.staging_failed
                    drill = Drill(self.cluster, random, self._watch_backend, failed, self.fail)
                    working.start_soon(drill.run)
                for life in self._lives:
                    working.start_soon(self._run_job, life)
            await self._everything_is_back()
            if self._layers is not None:
                await self._layers.come_to_rest()
            nursery.cancel_scope.cancel()

    async def _keep_rts(self) -> None:
        """Start the run-time system, again whenever it is gone, and hosts that were given up."""
        while True:
            process = await self.cluster.start_rts()
            await process.ended.wait()
            self.rts_ended.set()
            self.rts_ended = trio.Event()
            await trio.sleep(0.3)

    async def _run_job(self, life: JobLife) -> None:
        await life.run()
        self._running.discard(life)

    def _ended(self, process: SimulatedProcess) -> None:
        """A process is over: it was killed, or stopped with an error that a fault explains."""
        self.observer.gone(process, trio.current_time())
        if self._layers is not None:
            self._layers.gone(process)
        was_full = any(life.disk is not None and life.disk.was_full for life in self._lives)
        error = None if process.killed else process.error
        is_server = process.role == "store"
        if error is not None and not is_expected(error, disk_was_full=was_full, is_server=is_server):
            self.fail(error)

    async def _everything_is_back(self) -> None:
        """With no job left, only memory servers hold anything, and every resource is there again."""
        deadline = max(trio.current_time(), self._last_fault_s) + REST_S
        servers = {f"memory of {host}" for host in self.cluster.hosts}
        while True:
            rts = self.cluster.rts
            classes = rts.rm.status().classes if rts is not None else {}
            cores = classes.get("core")
            total = self.options.hosts * self.options.cores
            jobs = {job.name for job in rts.machine.jobs} - servers if rts is not None else set()
            all_free = cores is not None and cores.free == cores.total == total
            if all_free and rts is not None and not jobs:
                rts.rm.check()
                return
            if trio.current_time() > deadline:
                raise Broken(f"resources are not all back: {classes}; jobs that are left: {sorted(jobs)}")
            await trio.sleep(0.5)

    async def _keep_resources(self) -> None:
        """Add again what somebody has removed and could not add again."""
        while True:
            await trio.sleep(KEEPER_S)
            for rif in self.cluster.rts.machine.rifs if self.cluster.rts is not None else ():
                if rif.state is RifState.UP and not rif.leaving and self.cluster.missing(rif.rif_id):
                    self.injector.clients.put_back(rif.rif_id)

    async def _come_to_rest(self) -> None:
        """Stop the run-time system: nothing is left."""
        assert self.cluster.rts is not None
        rts = [process for process in self.cluster.processes if process.role == "rts" and process.alive]
        self.cluster.rts.stopped.set()
        if self._layers is not None:
            self._layers.stop()
        with trio.move_on_after(REST_S):
            if self.cluster.processes:
                await self.cluster.deserted.wait()
        if self.cluster.processes:
            raise Broken(f"processes are left: {', '.join(p.name for p in self.cluster.processes)}")
        if self.cluster.batch is not None:
            for process in rts:
                if not process.killed:
                    self.cluster.batch.checks.stopped(process)
            await self._queue_is_empty(self.cluster.batch)
        if self.cluster.wires.listeners:
            raise Broken(f"listeners are left: {list(self.cluster.wires.listeners)}")
        self.observer.at_rest()

    async def _queue_is_empty(self, batch: BlockSystem) -> None:
        """What the last run-time system has asked for was cancelled; other jobs end as nobody wants them."""
        with trio.move_on_after(2 * REST_S):
            while batch.there():
                await batch.changed()
        if left := batch.there():
            raise Broken(f"batch jobs are left: {', '.join(job.line for job in left)}")

    async def _watch_time(self) -> None:
        while True:
            due_s = self._last_fault_s + self._finish_s
            if trio.current_time() >= due_s:
                self.fail(Broken(f"not finished {self._finish_s:g} s after the last fault: {self._state()}"))
                return
            await trio.sleep_until(due_s)

    def _state(self) -> str:
        rts = self.cluster.rts
        status = rts.status() if rts is not None else None
        there = "" if status is None else f", {status.classes}, {status.jobs}"
        running = sorted(life.name for life in self._running)
        return f"jobs {running}{there}"

    def _watch_backend(self, process: SimulatedProcess, backend: SimulatedBackend) -> None:
        def begun(run: Run, compute: SimulatedCompute) -> None:
            try:
                self.observer.began(process, run)
            except Broken as error:
                self.fail(error)
                raise
            for fault in self._trigger.step("compute"):
                self._happens(fault, f"{process.name} {compute.resource.resource_id}")
                compute.die("killed by signal 9")

        if self.options.faults.races:
            backend.races = Random(f"{self._cluster_seed} {process.name}")

        def opened(run: Run) -> None:
            try:
                self.observer.opened(run)
            except Broken as error:
                self.fail(error)
                raise

        backend.on_begin, backend.on_open = begun, opened
        backend.on_end = lambda run: self.observer.ended(process, run)


def living_tasks() -> int:
    """Return the number of trio tasks."""
    return trio.lowlevel.current_statistics().tasks_living


class Simulated(Protocol):
    """What is simulated from a seed.

    Attributes:
        schedule, happened: faults that may happen, and those that did.
        observer: of all that happens.
        failure: what did not hold.
    """

    schedule: tuple[Fault, ...]
    happened: list[str]
    observer: Observer
    failure: BaseException | None

    async def run(self) -> None:
        """Run to the end."""
        ...

    def fail(self, error: BaseException) -> None:
        """End the run: something does not hold."""
        ...

    def close(self) -> None:
        """Give back what outlives trio."""
        ...


def simulate(seed: int, options: Options | None = None) -> Report:
    """Run one seed and say how it went; it raises nothing that the simulated system does.

    Args:
        seed: of everything.
        options: what is simulated.
    """
    options = options or Options()
    report = _simulate(seed, options, Simulation)
    if report.broken or not options.faults.studies:
        return report
    study = simulate_study(seed, options)
    chains = simulate_chains(seed, options)
    if not chains.broken and seed % RANGED_EVERY == 0:
        chains = simulate_ranges(seed, options)
    broken = study.broken or locations_broken(seed) or managers_broken(seed) or coallocation_broken(seed)
    return replace(
        study,
        broken=broken or chains.broken,
        schedule=report.schedule + study.schedule if options.schedule is None else options.schedule,
        happened=report.happened + study.happened,
        digest=blake2b(f"{report.digest} {study.digest}".encode(), digest_size=8).hexdigest(),
        events=report.events + study.events,
        simulated_s=report.simulated_s + study.simulated_s,
    )


def simulate_study(seed: int, options: Options | None = None) -> Report:
    """Run the study of one seed alone; see :func:`simulate`."""
    return _simulate(seed, options or Options(), StudySimulation)


def simulate_chains(seed: int, options: Options | None = None) -> Report:
    """Run chains of tasks of one seed alone; see :func:`simulate`."""
    return _simulate_one(seed, options, Options(hosts=2, jobs=1, tasks=6, chained=40))


def simulate_ranges(seed: int, options: Options | None = None) -> Report:
    """Run a farm of many items of one seed alone; see :func:`simulate`."""
    return _simulate_one(seed, options, Options(hosts=2, jobs=1, tasks=6, ranged=700))


def _simulate_one(seed: int, options: Options | None, what: Options) -> Report:
    faults = replace((options or Options()).faults, layers=False, wide=False, sites=False, drills=False)
    return _simulate(seed, replace(what, faults=faults), Simulation)


def _simulate(seed: int, options: Options, what: Callable[[int, Options, MockClock], Simulated]) -> Report:
    clock = simulated_clock()
    simulation: Simulated
    times = [0.0]

    async def main() -> None:
        nonlocal simulation
        simulation = what(seed, options, clock)
        try:
            await simulation.run()
        except Exception as error:
            simulation.fail(error)
        times[0] = trio.current_time()

    with seeded_trio(seed), rare_collections():
        trio.run(main, clock=clock)
    simulation.close()
    broken = ""
    story: tuple[str, ...] = ()
    if simulation.failure is not None:
        first = next(leaves(simulation.failure))
        broken, story = f"{type(first).__name__}: {first}", simulation.observer.story(first)
    return Report(
        seed,
        options,
        simulation.schedule,
        tuple(simulation.happened),
        simulation.observer.hash.digest,
        simulation.observer.hash.count,
        times[0],
        broken,
        story,
    )


__all__ = ["Broken", "Options", "Report", "Simulation", "first_of", "simulate", "simulate_study"]
