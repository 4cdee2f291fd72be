"""What must hold in every run, whatever happens: folds of what the machines take and say (reliability).

The checkers know nothing of the machines' insides. They are told of each event with the actions that came of
it, of tasks that begin and end in compute, and of processes that end; they raise :class:`Broken`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field

from gspc_trio.core.exchange import (
    Demand,
    Finished,
    Grant,
    Lapsed,
    Release,
    Revoke,
    Revoked,
    Submission,
    Submit,
)
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId, TaskId
from gspc_trio.core.records import GrantChanged, ResourceChanged
from gspc_trio.core.rm.events import Added, JobGone
from gspc_trio.core.scheduler import ResourcesLost, RetryTask, TaskDone
from gspc_trio.core.task import Shape, TaskState
from gspc_trio.protocol.limits import DEFAULT_LIMITS
from gspc_trio.testing.backend import Run
from gspc_trio.testing.process import SimulatedProcess
from gspc_trio.workflow.job import JobEnded


class Broken(AssertionError):
    """Something that must hold does not.

    Args:
        what: for people.
        about: words that the story is about: ``task 3 of j1``, ``r1.core0``.
    """

    def __init__(self, what: str, *about: str) -> None:
        super().__init__(what)
        self.about = about


class Family:
    """Which resources contain each other."""

    def __init__(self) -> None:
        self._above: dict[ResourceId, frozenset[ResourceId]] = {}
        self._relatives: dict[ResourceId, tuple[ResourceId, ...]] = {}

    def add(self, event: Added) -> None:
        """Resources are there; a parent comes before its children."""
        for resource in event.resources:
            above: set[ResourceId] = set()
            for parent in resource.parents:
                above |= {parent, *self._above.get(parent, ())}
            self._above[resource.resource_id] = frozenset(above)
        self._relatives.clear()

    def near(self, name: ResourceId) -> tuple[ResourceId, ...]:
        """Return the resource with its ancestors and descendants."""
        found = self._relatives.get(name)
        if found is None:
            above = self._above.get(name, frozenset())
            below = [other for other, over in self._above.items() if name in over]
            found = self._relatives[name] = (name, *sorted(above), *below)
        return found


@define(eq=False)
class _Live:
    """A grant that has not ended."""

    grant_id: GrantId
    job: JobId
    left: set[ResourceId]
    revoked: bool = False


class Grants:
    """The grants of one resource manager, from what it hears and says: invariants 4, 5, 6 and 7.

    Args:
        family: of the resources.
        quiet_since: returns the time of the last fault.
    """

    def __init__(self, family: Family, quiet_since: Callable[[], float]) -> None:
        self._family = family
        self._quiet_since = quiet_since
        self._live: dict[GrantId, _Live] = {}
        self._held: dict[ResourceId, _Live] = {}
        self._there: set[ResourceId] = set()
        self._last = NO_GRANT
        self._credit: dict[tuple[JobId, Shape], int] = {}
        self._sent: dict[tuple[JobId, Shape], list[GrantId]] = {}
        self._dead: dict[JobId, float] = {}

    @property
    def resources(self) -> int:
        """Number of resources that are there."""
        return len(self._there)

    def job_died(self, job: JobId, now: float) -> None:
        """The job's process is gone."""
        self._dead[job] = now

    def saw(self, event: Any, now: float, actions: list[Any]) -> None:
        """The resource manager took an event."""
        kind = type(event)
        if kind is Release:
            self._end(event.grant_id, event.resources, event.job)
        elif kind is Demand:
            self._demand(event)
        elif kind is Revoked:
            live = self._live.get(event.grant_id)
            if live is not None and live.revoked:
                self._end(event.grant_id, event.resources, live.job)
        elif kind is Added:
            self._family.add(event)
        elif kind is JobGone and event.fenced:
            for live in [live for live in self._live.values() if live.job == event.job]:
                self._end(live.grant_id, (), live.job)
        for action in actions:
            if type(action) is ResourceChanged:
                self._changed(action)
        for action in actions:
            kind = type(action)
            if kind is Grant:
                self._grant(action)
            elif kind is GrantChanged:
                self._free(action)
            elif kind is Revoke and action.grant_id in self._live:
                self._live[action.grant_id].revoked = True
        if self._dead:
            self._look_at_the_dead(now)

    def _changed(self, record: ResourceChanged) -> None:
        name = record.resource_id
        if record.state == "added":
            self._there.add(name)
            return
        self._there.discard(name)
        live = self._held.get(name)
        if live is not None:
            self._end(live.grant_id, (name,), live.job)

    def _demand(self, event: Demand) -> None:
        key = (event.job, event.shape)
        sent = self._sent[key] = [grant for grant in self._sent.get(key, ()) if grant > event.seen]
        self._credit[key] = max(0, event.credit - len(sent))

    def _grant(self, grant: Grant) -> None:
        if grant.grant_id <= self._last:
            raise Broken(f"grant {grant.grant_id} follows {self._last}", *grant.resources)
        self._last = grant.grant_id
        key = (grant.job, grant.shape)
        if self._credit.get(key, 0) <= 0:
            raise Broken(f"{grant.job} got grant {grant.grant_id} without credit", *grant.resources)
        self._credit[key] -= 1
        self._sent.setdefault(key, []).append(grant.grant_id)
        live = _Live(grant.grant_id, grant.job, set(grant.resources))
        for name in grant.resources:
            if name not in self._there:
                raise Broken(f"{name} is granted and not there", name)
            for relative in self._family.near(name):
                other = self._held.get(relative)
                if other is not None:
                    raise Broken(
                        f"{name} is granted to {grant.job} while {relative} is held by {other.job} "
                        f"under grant {other.grant_id}",
                        name,
                        relative,
                    )
            self._held[name] = live
        self._live[grant.grant_id] = live

    def _free(self, record: GrantChanged) -> None:
        if record.held:
            return
        for name in record.resources:
            live = self._held.get(name)
            if live is not None and live.grant_id == record.grant_id:
                raise Broken(f"{name} is free, but grant {record.grant_id} was not given back", name)

    def _end(self, grant_id: GrantId, names: tuple[ResourceId, ...], job: JobId) -> None:
        live = self._live.get(grant_id)
        if live is None or live.job != job:
            return
        for name in names or tuple(live.left):
            if name in live.left:
                live.left.discard(name)
                del self._held[name]
        if not live.left:
            del self._live[grant_id]

    def _look_at_the_dead(self, now: float) -> None:
        lease_s, heartbeat_s = DEFAULT_LIMITS.lease_s, DEFAULT_LIMITS.heartbeat_s
        for job, died_s in list(self._dead.items()):
            if now <= max(died_s, self._quiet_since()) + 2 * lease_s + 2 * heartbeat_s:
                continue
            left = [live for live in self._live.values() if live.job == job]
            if left:
                raise Broken(
                    f"{job}, dead for {now - died_s:.1f} s, still holds grant {left[0].grant_id}",
                    *left[0].left,
                )
            del self._dead[job]


class Fences:
    """What runs where under which grant, from what RIFs take and what really runs: invariants 4 and 5.

    Args:
        family: of the resources.
    """

    def __init__(self, family: Family) -> None:
        self._family = family
        self._grant_of: dict[tuple[SimulatedProcess, JobId, TaskId, int], GrantId] = {}
        self._newest: dict[tuple[SimulatedProcess, ResourceId], GrantId] = {}
        self._running: dict[tuple[int, str, str], tuple[SimulatedProcess, Run, GrantId]] = {}

    def submitted(self, process: SimulatedProcess, event: Submit) -> None:
        """A RIF was given attempts."""
        for submission in event.submissions:
            key = (process, event.job, submission.task_id, submission.attempt)
            self._grant_of[key] = event.grant_id

    def began(self, process: SimulatedProcess, run: Run) -> GrantId:
        """An attempt begins in compute; return its grant."""
        key = (process, run.job, run.task_id, run.attempt)
        grant_id = self._grant_of.get(key)
        task = f"task {run.task_id} of {run.job}"
        if grant_id is None:
            raise Broken(f"{task} runs on {run.resource_id}, which never got it", task)
        for name in self._family.near(run.resource_id):
            newest = self._newest.get((process, name), NO_GRANT)
            if grant_id < newest:
                raise Broken(
                    f"{task} runs on {run.resource_id} under grant {grant_id}, after {newest} on {name}",
                    task,
                    name,
                )
            found = self._running.get((grant_id[0], process.host, name.partition(".")[2]))
            if found is None or not found[0].alive or (found[1].job, found[2]) == (run.job, grant_id):
                continue
            raise Broken(
                f"{task} runs on {run.resource_id} under grant {grant_id} beside task {found[1].task_id} "
                f"of {found[1].job} on {name} under {found[2]}",
                task,
                name,
            )
        self._newest[process, run.resource_id] = grant_id
        self._running[grant_id[0], process.host, run.resource_id.partition(".")[2]] = process, run, grant_id
        return grant_id

    def ended(self, process: SimulatedProcess, run: Run) -> None:
        """An attempt is no longer in compute."""
        grant_id = self._grant_of.get((process, run.job, run.task_id, run.attempt), NO_GRANT)
        key = (grant_id[0], process.host, run.resource_id.partition(".")[2])
        found = self._running.get(key)
        if found is not None and found[1] is run:
            del self._running[key]

    def at_rest(self) -> None:
        """Nothing runs."""
        for process, run, _ in self._running.values():
            if process.alive:
                raise Broken(f"task {run.task_id} of {run.job} still runs on {run.resource_id}")


@define(eq=False)
class _Task:
    """A task of one job: its last attempt, whether that is under way, how it ended."""

    attempt: int = 0
    resource_id: ResourceId = ""
    grant_id: GrantId = NO_GRANT
    sent: bool = False
    may_rerun: bool = True
    runs: int = 0
    state: TaskState | None = None
    reported: set[int] = field(factory=set)


class Tasks:
    """The tasks of one job, from what its machine takes and says: invariants 1, 2 and 3.

    Args:
        job: its id.
    """

    def __init__(self, job: JobId) -> None:
        self.job = job
        self._tasks: dict[TaskId, _Task] = {}

    def saw(self, event: Any, actions: list[Any]) -> None:
        """The job's machine took an event."""
        kind = type(event)
        if kind is Finished:
            for outcome in event.outcomes:
                self._reported(outcome.task_id, outcome.attempt)
        elif kind is ResourcesLost:
            self._lost(set(event.resource_ids))
        elif kind is RetryTask and event.task_id in self._tasks:
            self._tasks[event.task_id].state = None
        elif kind is Lapsed:
            self._lapsed(event)
        for action in actions:
            kind = type(action)
            if kind is Submit:
                for submission in action.submissions:
                    self._submit(submission, action)
            elif kind is TaskDone:
                self._done(action)
            elif kind is JobEnded:
                self._ended(action)

    def extracted(self, task_id: TaskId, may_rerun: bool) -> None:
        """The engine has handed out a task."""
        if task_id in self._tasks and self._tasks[task_id].state is not None:
            raise Broken(f"task {task_id} is handed out again", self._words(task_id))
        self._tasks.setdefault(task_id, _Task()).may_rerun = may_rerun

    def injected(self, task_id: TaskId) -> None:
        """The engine has got a result."""
        task = self._tasks.get(task_id)
        if task is None or task.state is not None:
            raise Broken(f"task {task_id} was injected, and is {task and task.state}", self._words(task_id))

    def began(self, run: Run) -> None:
        """An attempt begins in compute."""
        task = self._tasks.get(run.task_id)
        if task is None:
            raise Broken(f"task {run.task_id} of {run.job} runs and is unknown", self._words(run.task_id))
        task.runs += 1
        if task.runs > 1 and not task.may_rerun:
            raise Broken(f"task {run.task_id}, which may run once, runs again", self._words(run.task_id))

    def _words(self, task_id: TaskId) -> str:
        return f"task {task_id} of {self.job}"

    def _reported(self, task_id: TaskId, attempt: int) -> None:
        task = self._tasks.get(task_id)
        if task is not None and task.attempt == attempt:
            task.sent = False
            task.reported.add(attempt)

    def _lost(self, names: set[ResourceId]) -> None:
        for task in self._tasks.values():
            if task.sent and task.resource_id in names:
                task.sent = False

    def _lapsed(self, event: Lapsed) -> None:
        for task in self._tasks.values():
            if task.sent and task.grant_id in event.grant_ids:
                task.sent = False

    def _submit(self, submission: Submission, submit: Submit) -> None:
        words = self._words(submission.task_id)
        task = self._tasks.get(submission.task_id)
        if task is None or task.state is not None:
            raise Broken(f"{words} is submitted, and is {task and task.state}", words)
        if task.sent:
            raise Broken(f"{words} is submitted again while attempt {task.attempt} is under way", words)
        if submission.attempt <= task.attempt:
            raise Broken(f"{words}: attempt {submission.attempt} follows {task.attempt}", words)
        task.attempt, task.sent = submission.attempt, True
        task.resource_id, task.grant_id = submit.resources[0], submit.grant_id

    def _done(self, done: TaskDone) -> None:
        words = self._words(done.task_id)
        # A task that fails through another one was never handed out.
        task = self._tasks.setdefault(done.task_id, _Task())
        if task.state is not None:
            raise Broken(f"{words} is {done.state} after it was {task.state}", words)
        if done.state is TaskState.FINISHED:
            attempt = done.outcome.attempt
            if attempt != task.attempt or attempt not in task.reported:
                raise Broken(f"{words} finished by attempt {attempt}; the last one is {task.attempt}", words)
        task.state = done.state

    def _ended(self, ended: JobEnded) -> None:
        for task_id, task in self._tasks.items():
            if task.state is None:
                words = self._words(task_id)
                raise Broken(f"{self.job} {ended.state}, but {words} has not ended", words)
            if ended.state == "finished" and task.state is TaskState.FAILED:
                raise Broken(f"{self.job} finished with a failed task", self._words(task_id))
