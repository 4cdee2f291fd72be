"""What becomes of tasks: invariants 1, 2 and 3."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from gspc_trio.components.job_recovery import FIRST_TASK_ID
from gspc_trio.core.exchange import Finished, Lapsed, Release, Submission, Submit
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId, TaskId
from gspc_trio.core.records import GrantChanged
from gspc_trio.core.scheduler import Claims, ResourcesLost, RetryTask, TaskDone
from gspc_trio.core.task import TaskState
from gspc_trio.testing.backend import Run
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.workflow.job import JobEnded, TakenOver


@define(eq=False)
class _Task:
    """A task of one job: its last attempt, whether that is under way, how it ended."""

    attempt: int = 0
    resources: tuple[ResourceId, ...] = ()
    grant_id: GrantId = NO_GRANT
    sent: bool = False
    may_rerun: bool = True
    runs: int = 0
    state: TaskState | None = None
    taken_in: bool = False
    reported: set[int] = field(factory=set)


class Tasks:
    """The tasks of one job, from what its machine takes and says: invariants 1, 2 and 3.

    Args:
        job: its id.
        journaled: a result is taken in some time after it has come.
    """

    def __init__(self, job: JobId, journaled: bool = False) -> None:
        self.job = job
        self._journaled = journaled
        self._tasks: dict[TaskId, _Task] = {}

    def again(self, task_id: TaskId) -> None:
        """A task is run again for data that was lost."""
        if task_id in self._tasks:
            raise Broken(
                f"{self._words(task_id)} is run again under an id that was used", self._words(task_id)
            )
        self._tasks[task_id] = _Task()

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
        elif kind is TakenOver:
            self._taken_over(event, {action.task_id for action in actions if type(action) is TaskDone})
        kept = [action for action in actions if type(action) is GrantChanged and not action.held]
        if kept and kind is not Lapsed:
            given = {action.grant_id for action in actions if type(action) is Release}
            claims = [action for action in actions if type(action) is Claims]
            named = {grant.grant_id for claim in claims for grant in claim.grants}
            for action in kept:
                if action.grant_id in named or not (claims or action.grant_id in given):
                    raise Broken(
                        f"{self.job} forgets grant {action.grant_id} without a word", *action.resources
                    )
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
        task, words = self._tasks.get(task_id), self._words(task_id)
        if task_id >= FIRST_TASK_ID:
            raise Broken(f"{words}, which ran again for its data, was injected", words)
        if task is None or task.state is not (TaskState.FINISHED if self._journaled else None):
            raise Broken(f"{words} was injected, and is {task and task.state}", words)
        if task.taken_in:
            raise Broken(f"{words} was injected again", words)
        task.taken_in = True

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
            if task.sent and not names.isdisjoint(task.resources):
                task.sent = False

    def _lapsed(self, event: Lapsed) -> None:
        for task in self._tasks.values():
            if task.sent and task.grant_id in event.grant_ids:
                task.sent = False

    def _taken_over(self, event: TakenOver, done: set[TaskId]) -> None:
        """Attempts of an earlier job server have finished; they count where the task was not handed out."""
        for outcome in event.outcomes:
            if outcome.task_id in done:
                task = self._tasks.setdefault(outcome.task_id, _Task())
                if not task.attempt:
                    task.attempt = outcome.attempt
                    task.reported.add(outcome.attempt)

    def _submit(self, submission: Submission, submit: Submit) -> None:
        words = self._words(submission.task_id)
        if submission.task_id >= FIRST_TASK_ID and submission.task_id not in self._tasks:
            self.again(submission.task_id)
        task = self._tasks.get(submission.task_id)
        if task is None or task.state is not None:
            raise Broken(f"{words} is submitted, and is {task and task.state}", words)
        if task.sent:
            raise Broken(f"{words} is submitted again while attempt {task.attempt} is under way", words)
        if submission.attempt <= task.attempt:
            raise Broken(f"{words}: attempt {submission.attempt} follows {task.attempt}", words)
        task.attempt, task.sent = submission.attempt, True
        task.resources, task.grant_id = submit.resources, submit.grant_id

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
