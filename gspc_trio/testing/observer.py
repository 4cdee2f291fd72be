"""Sees all that happens in a simulated cluster: feeds the checkers, keeps the history, tells stories."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import trio

from gspc_trio.components.job.engine_wrapper import Engine, EngineWrapper
from gspc_trio.components.job.journal import JournaledEngine
from gspc_trio.components.job.machine import JobAction, JobEvent, JobMachine
from gspc_trio.components.job.ranged import RangedJobMachine
from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.job.shell.settings import RESUME_GRACE_S
from gspc_trio.components.monitor.reaction import Reaction
from gspc_trio.components.provision.site import BatchSite
from gspc_trio.components.rif.events import AtWorker, GrantChecked
from gspc_trio.components.rif.host import RifHost
from gspc_trio.components.rm.messages import Revoked
from gspc_trio.components.rts.actions import AcceptJob, RtsAction
from gspc_trio.components.rts.events import RtsEvent
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.worker.messages import Finished, Submit
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, TaskId
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import FailedThrough, Task, TaskError, TaskState
from gspc_trio.iml.coordinator import Coordinator
from gspc_trio.iml.store import Store
from gspc_trio.protocol.session import Session
from gspc_trio.protocol.signals import Lost
from gspc_trio.testing.checkers.avoided import Evacuated, Held
from gspc_trio.testing.checkers.base import Broken, Family
from gspc_trio.testing.checkers.bounds import Bounds
from gspc_trio.testing.checkers.durable import Durable
from gspc_trio.testing.checkers.grants import Grants
from gspc_trio.testing.checkers.recalls import Recalls
from gspc_trio.testing.checkers.run_time_system import RunTimeSystem
from gspc_trio.testing.checkers.sending import Sending
from gspc_trio.testing.checkers.sessions import Sessions, Silence
from gspc_trio.testing.checkers.tasks import Tasks
from gspc_trio.testing.checkers.turns import Turns
from gspc_trio.testing.checkers.uses import Uses
from gspc_trio.testing.checkers.waiting import Waiting
from gspc_trio.testing.checkers.work import Work
from gspc_trio.testing.determinism import EventHash
from gspc_trio.testing.simulated.backend import Run
from gspc_trio.testing.simulated.process import SimulatedProcess

HISTORY_EVENTS = 20_000
"""Events that are kept for a story."""

CHECKED_ALWAYS = 20
"""A machine with so many tasks, resources or data checks itself after each event, a larger one less often."""

IDLE_TICK = 0.1
"""What a look at the clock that leads to nothing counts for, of an event after which to check."""

STORY_LINES = 50
"""The last lines of a story that are told."""

TEXT_CHARACTERS = 160
"""Of one event or action in a story."""

RM = "AnsweringManager"
"""The resource manager, with its shell's addition."""

Seen: TypeAlias = tuple[float, SimulatedProcess, str, object, Sequence[object]]


class Checked(Protocol):
    """A machine, of which nothing more is known than that it checks itself."""

    def check(self) -> None:
        """Assert every invariant."""
        ...


class Observer:
    """Watches one run.

    Args:
        quiet_since: returns the time of the last fault.
        things: returns the number of processes and ends of connections.
        full_checks: machines check themselves after each event, however large they are.

    Attributes:
        silence: which faults explain that somebody is not heard.
        grace_s: for how long the run-time system awaits jobs that it does not hear.
    """

    def __init__(
        self, quiet_since: Callable[[], float], things: Callable[[], int], full_checks: bool = False
    ) -> None:
        self.hash: EventHash = EventHash()
        self.bounds: Bounds = Bounds(things)
        self._full_checks = full_checks
        self._unchecked: dict[tuple[SimulatedProcess, type], float] = {}
        self._quiet_since = quiet_since
        self._history: deque[Seen] = deque(maxlen=HISTORY_EVENTS)
        self._family = Family()
        self.work: Work = Work(self._family, quiet_since)
        self._uses: dict[SimulatedProcess, Uses] = {}
        self._submits: dict[SimulatedProcess, list[Submit]] = {}
        self._grants: dict[SimulatedProcess, Grants] = {}
        self._waiting: dict[SimulatedProcess, tuple[Waiting, Turns, Recalls]] = {}
        self._current: Grants | None = None
        self._tasks: dict[SimulatedProcess, Tasks] = {}
        self._sending: dict[SimulatedProcess, Sending] = {}
        self._rm_of: dict[SimulatedProcess, Grants | None] = {}
        self._by_job: dict[tuple[JobId, int], Tasks] = {}
        self._durable: dict[SimulatedProcess, Durable] = {}
        self._grant_of: dict[tuple[JobId, int, int], GrantId] = {}
        self.silence: Silence = Silence()
        self._sessions = Sessions(self.silence.explains)
        self._rts: dict[SimulatedProcess, RunTimeSystem] = {}
        self._held: dict[SimulatedProcess, Held] = {}
        self._evacuated: dict[SimulatedProcess, Evacuated] = {}
        self._named: set[JobId] = set()
        self.grace_s: float = 0.0

    def saw(
        self,
        process: SimulatedProcess,
        machine: Any,
        event: Any,
        now: float,
        actions: Sequence[Any],
    ) -> None:
        """A machine of a living process took an event.

        Raises:
            Broken: an invariant does not hold.
            AssertionError: the machine's own check failed.
        """
        name = type(machine).__name__
        self._keep(process, machine, event, now, actions)
        self._is_at_work(process, machine, now)
        if type(machine) is Session:
            machine.check()
            self._sessions.saw(process, machine, event, now, actions)
            if type(event) is Lost and (process.role, machine.peer_role) == ("rif", "rts"):
                self.work.closed(process, event.reason, now)
            return
        self._check(process, machine, event, actions)
        if type(machine) is Reaction:
            self._held.setdefault(process, Held(machine.limits)).saw(event, now, actions)
        elif type(machine) is JobMachine:
            self._job(process, machine, event, now, actions)
        elif type(machine) is RifHost:
            uses = self._uses.setdefault(process, Uses())
            uses.saw(event, now, actions)
            if type(event) is not AtWorker:
                uses.check_claims(machine.rif.claims)
            if type(event) is Submit:
                self.work.submitted(process, event)
                self._submits.setdefault(process, []).append(event)
                tasks = self._by_job.get((event.job, event.grant_id[0]))
                if tasks is not None:
                    tasks.arrived(event)
            elif type(event) is GrantChecked:
                self.work.checked(process, event)
            for action in actions:
                if type(action) is Finished:
                    self.work.reported(process, action)
                elif type(action) is Revoked:
                    self.work.revoked(process, action)
        elif name == RM:
            grants = self._grants.get(process)
            if grants is None:
                grants = self._grants[process] = Grants(
                    self._family, self._quiet_since, self._current.last if self._current else NO_GRANT
                )
                self._current = grants
                waiting = Waiting(self._family, grants)
                turns = Turns(self._family, grants, waiting)
                recalls = Recalls(self._family, grants, waiting)
                self._waiting[process] = waiting, turns, recalls
            grants.saw(event, now, actions)
            waiting, turns, recalls = self._waiting[process]
            waiting.take(event, now, actions)
            aside = machine.aside
            turns.saw(event, now, actions, aside)
            recalls.saw(event, now, actions, aside)
        elif type(machine) is Rts:
            self._run_time_system(process, machine, event, now, actions)
            for action in actions:
                if type(action) is AcceptJob and action.adopted and process in self._grants:
                    self._grants[process].adopted(action.adopted, action.job)

    def _keep(
        self, process: SimulatedProcess, machine: object, event: object, now: float, actions: Sequence[object]
    ) -> None:
        """Keep what has happened for the story, and look at what may not grow."""
        name = type(machine).__name__
        self.hash.add(process.name, name, event, now, actions)
        self._history.append((now, process, name, event, actions))
        self.bounds.event()
        self.bounds.told(process, machine, event, now, bool(actions))

    def _is_at_work(self, process: SimulatedProcess, machine: object, now: float) -> None:
        if process.role == "rts" and process in self._rts and type(machine) is not BatchSite:
            # The jobs of blocks are cancelled when everything else of the process is over.
            self._rts[process].is_at_work(now)
            if process in self._held:
                self._held[process].due.look(now)

    def _run_time_system(
        self,
        process: SimulatedProcess,
        machine: Rts,
        event: RtsEvent,
        now: float,
        actions: Sequence[RtsAction],
    ) -> None:
        checks = self._rts.get(process)
        if checks is None:  # its first event changes nothing of what an earlier one has left
            checks = self._rts[process] = RunTimeSystem(machine, now, self._named, self._family)
        checks.saw(event, now, actions)

    def _check(
        self, process: SimulatedProcess, machine: Checked, event: object, actions: Sequence[object]
    ) -> None:
        """Let the machine count everything anew; a large one does it less often, for it takes long."""
        size = self._size(process, machine)
        grants = self._grants.get(process) if type(machine).__name__ == RM else None
        self.bounds.machine(process, machine, size if grants is None else grants.size)
        if size > CHECKED_ALWAYS and not self._full_checks:
            weight = 1.0 if actions or type(event) is not Tick else IDLE_TICK
            unchecked = self._unchecked.get((process, type(machine)), 0.0) + weight
            is_due = unchecked >= size / CHECKED_ALWAYS
            self._unchecked[process, type(machine)] = 0.0 if is_due else unchecked
            if not is_due:
                return
        machine.check()

    def _size(self, process: SimulatedProcess, machine: Checked) -> int:
        if isinstance(machine, JobMachine):  # the engine of one with ranges is not wrapped, and counts
            known = machine.ranges.known if isinstance(machine, RangedJobMachine) else 0
            return machine.scheduler.live + known
        if isinstance(machine, RifHost):
            return len(machine.workers) + sum(worker.attempts for worker in machine.workers.values())
        if isinstance(machine, Coordinator | Store):
            return machine.size
        grants = self._grants.get(process)
        return grants.resources if grants is not None else 0

    def _job(
        self,
        process: SimulatedProcess,
        machine: JobMachine,
        event: JobEvent,
        now: float,
        actions: Sequence[JobAction],
    ) -> None:
        tasks = self._tasks[process]
        if not tasks.job:
            tasks.job = machine.job
            self._rm_of[process] = self._current
        tasks.saw(event, actions)
        self._evacuated.setdefault(process, Evacuated()).saw(event, actions)
        sending = self._sending[process]
        sending.has_queues = machine.scheduler.has_queues
        sending.has_plan = machine.scheduler.has_plan
        sending.saw(event, now, actions)
        if sending.has_queues:
            done = {action.task_id for action in actions if type(action) is TaskDone}
            sending.waits(machine.scheduler.queued(), machine.scheduler, done)
        durable = self._durable.get(process)
        for action in actions:
            if type(action) is Submit:
                self._by_job[machine.job, action.grant_id[0]] = tasks
            elif durable is not None and type(action) is TaskDone and action.state is TaskState.FINISHED:
                durable.reported(action.task_id, action.outcome.values)

    def watch(self, process: SimulatedProcess, engine: Engine, durable: Durable | None) -> WatchedEngine:
        """Return what takes the place of the engine of a job that begins, or goes on with its journal."""
        tasks = self._tasks[process] = Tasks("", durable is not None)
        if durable is not None:
            self._durable[process] = durable
        sending = self._sending[process] = Sending()
        return WatchedEngine(engine, tasks, sending, durable)

    def began(self, process: SimulatedProcess, run: Run) -> None:
        """An attempt begins in compute."""
        self._history.append((run.begin_s, process, "compute", run, []))
        self._grant_of[run.job, run.task_id, run.attempt] = self.work.began(process, run)

    def opened(self, run: Run) -> None:
        """The arguments of an attempt in compute are there: what it runs begins."""
        epoch, _ = self._grant_of.pop((run.job, run.task_id, run.attempt))
        tasks = self._by_job.get((run.job, epoch))
        if tasks is not None:
            tasks.began(run)

    def ended(self, process: SimulatedProcess, run: Run) -> None:
        """An attempt is no longer in compute."""
        self._history.append((trio.current_time(), process, "compute", run, []))
        self.work.ended(process, run)

    def gone(self, process: SimulatedProcess, now: float) -> None:
        """A process is gone."""
        if process.dark:
            self.silence.happens("crash", 0.0, now)
        tasks = self._tasks.get(process)
        grants = self._current if self.grace_s else self._rm_of.get(process)
        if tasks is not None and grants is not None:
            grants.job_died(tasks.job, now, RESUME_GRACE_S if process in self._durable else self.grace_s)

    def overtaken(self, process: SimulatedProcess) -> list[Submit]:
        """Return what a RIF was once given under grants that newer ones have overtaken since."""
        submits = self._submits.get(process, ())
        return [submit for submit in submits if self.work.is_overtaken(process, submit)]

    def at_rest(self) -> None:
        """Everything is finished."""
        self.work.at_rest()

    def story(self, error: BaseException) -> tuple[str, ...]:
        """Return what happened to the tasks and resources that an error is about, or at the end at all."""
        about = error.about if isinstance(error, Broken) else ()
        patterns = [_pattern(words) for words in about]
        lines: deque[str] = deque(maxlen=STORY_LINES)
        for now, process, kind, event, actions in self._history:
            if not patterns and kind == Session.__name__:
                continue
            who = f"{process.name} {kind.strip('_')}"
            said = [str(event), *map(str, actions)]
            if patterns:
                said = [text for text in said if any(pattern.search(text) for pattern in patterns)]
            if said:
                lines.append(f"{now:12.6f} {who}: {' => '.join(text[:TEXT_CHARACTERS] for text in said[:4])}")
        return tuple(lines)


def _pattern(words: str) -> re.Pattern[str]:
    task = re.fullmatch(r"task (\d+) of \w+", words)
    if task is not None:
        return re.compile(rf"task_id={task[1]}\b|key=\({task[1]}, |\(\({task[1]}, ")
    return re.compile(rf"{re.escape(words)}(?!\w)")


class WatchedEngine(EngineWrapper):
    """A workflow engine whose hand-outs and results are checked.

    Args:
        engine: does the work.
        tasks, sending: check.
        durable: checks what its journal holds; None for an engine without one.
    """

    def __init__(self, engine: Engine, tasks: Tasks, sending: Sending, durable: Durable | None) -> None:
        super().__init__(engine)
        self.fail: Callable[[TaskId, TaskError], tuple[FailedThrough, ...] | None] = engine.fail
        self.cancelled: Callable[[TaskId], tuple[FailedThrough, ...] | None] = engine.cancelled
        self.take_over: Callable[[TaskId], Task | None] = engine.take_over
        self._tasks = tasks
        self._sending = sending
        self._durable = durable
        self._engine = engine.dependents
        self._note()

    def _note(self) -> None:
        if self._durable is not None:
            assert isinstance(self._wrapped, JournaledEngine)
            self._durable.note(self._wrapped.engine)

    def next(self) -> int | None:
        """Return the id of a task that is ready, or None."""
        task_id = self._wrapped.next()
        self._note()
        return task_id

    @property
    def dependents(self) -> WatchedEngine | None:
        """Itself, if what it watches knows what takes which result."""
        return None if self._engine is None else self

    def follower(self, task_id: TaskId) -> Task | None:
        """Return the task that waits for the result of this one alone."""
        assert self._engine is not None
        return self._engine.follower(task_id)

    def extract(self, task_id: int, ahead: int = 0) -> Task:
        """Hand out a task."""
        task = self._engine.extract(task_id, ahead) if self._engine else self._wrapped.extract(task_id)
        self._tasks.extracted(task_id, task.options)
        self._sending.extracted(task)
        if self._durable is not None:
            self._durable.extracted(task_id)
        return task

    def inject(self, task_id: int, values: tuple[tuple[bytes, ...], ...]) -> None:
        """Take a result."""
        self._tasks.injected(task_id)
        self._wrapped.inject(task_id, values)
        if self._durable is not None:
            self._durable.injected(task_id, values)
        self._note()
