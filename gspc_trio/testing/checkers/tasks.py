"""Checker of tasks, from their start to their end (invariants 1, 2 and 3).

What was never sent has not begun: it never counts as lost or unknown, and never reaches a host later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import define, field

from gspc_trio.components.job.machine import JobAction, JobEnded, JobEvent, TakenOver
from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    Claims,
    HostEvacuated,
    ResourcesLost,
    RetryTask,
    Stop,
    TaskDone,
    Withheld,
)
from gspc_trio.components.job.shell.recovery import FIRST_TASK_ID
from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Release
from gspc_trio.components.worker.messages import Cancel, Finished, Submission, Submit
from gspc_trio.components.worker.verdict import NOT_MADE, REFUSED, TAKEN_BACK
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId, TaskId
from gspc_trio.core.task import Outcome, Reason, Shape, TaskOptions, TaskState
from gspc_trio.records.facts import GrantChanged, TaskChanged
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.simulated.backend import Run

_UNBEGUN = frozenset({TAKEN_BACK.error.kind, NOT_MADE.error.kind, REFUSED})


@define(eq=False)
class _Task:
    """A task of one job: its last attempt, whether that is under way, how it ended.

    ``attempts`` is how often it may be tried when it fails; None: nobody has said.
    ``after`` is the task whose result it takes, if it was sent before that was there.
    ``number`` is that of its last submission in the job, ``unsent`` are attempts that were never sent;
    ``untaken`` those that came back because they were asked for or not taken: people do not count them;
    ``evacuated`` those that were asked to end since their host may fail: how they end does not count.
    """

    attempt: int = 0
    resources: tuple[ResourceId, ...] = ()
    grant_id: GrantId = NO_GRANT
    sent: bool = False
    may_rerun: bool = True
    attempts: int | None = None
    failures: int = 0
    cancelled: bool = False
    cancel_told: bool = False
    runs: int = 0
    state: TaskState | None = None
    taken_in: bool = False
    number: int = 0
    after: TaskId = 0
    unsent: set[int] = field(factory=set)
    untaken: set[int] = field(factory=set)
    evacuated: set[int] = field(factory=set)
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
        self._is_stopping = False
        self._has_cancelled = False  # what takes the result of one that was cancelled fails
        self._wanted: dict[Shape, int] = {}
        self._grants: dict[GrantId, set[ResourceId]] = {}
        self._told_held: dict[GrantId, set[ResourceId]] = {}
        self._recalled: set[GrantId] = set()
        self._submissions = 0

    def again(self, task_id: TaskId) -> None:
        """A task is run again for data that was lost."""
        if task_id in self._tasks:
            raise Broken(
                f"{self._words(task_id)} is run again under an id that was used", self._words(task_id)
            )
        self._tasks[task_id] = _Task()

    def saw(self, event: JobEvent, actions: Sequence[JobAction]) -> None:
        """The job's machine took an event."""
        if type(event) is Finished:
            for outcome in event.outcomes:
                self._reported(outcome)
        elif type(event) is ResourcesLost:
            self._lost(set(event.resource_ids))
        elif type(event) is RetryTask and event.task_id in self._tasks:
            self._tasks[event.task_id].state = None
            self._tasks[event.task_id].failures = 0
        elif type(event) is CancelTasks:
            for task_id in event.task_ids:
                if task_id in self._tasks:
                    self._tasks[task_id].cancelled = self._has_cancelled = True
        elif type(event) is Stop:
            self._is_stopping = True
        elif type(event) is Grant:
            self._wanted[event.shape] = max(0, self._wanted.get(event.shape, 0) - 1)
        elif type(event) is Lapsed:
            self._lapsed(event)
        elif type(event) is Withheld:
            self._withheld(event)
        elif type(event) is TakenOver:
            self._taken_over(event, {action.task_id for action in actions if type(action) is TaskDone})
        kept = [action for action in actions if type(action) is GrantChanged and not action.held]
        if kept and type(event) is not Lapsed:
            given = {action.grant_id for action in actions if type(action) is Release}
            claims = [action for action in actions if type(action) is Claims]
            named = {grant.grant_id for claim in claims for grant in claim.grants}
            for ended in kept:
                if ended.grant_id in named or not (claims or ended.grant_id in given):
                    raise Broken(
                        f"{self.job} forgets grant {ended.grant_id} without a word", *ended.resources
                    )
        for action in actions:
            if type(action) is Submit:
                self._check_grant(action)
                for submission in action.submissions:
                    self._submit(submission, action)
            elif type(action) is TaskDone:
                self._done(action)
            elif type(action) is Demand:
                self._wanted[action.shape] = action.credit
            elif type(action) is Claims:
                self._claim(action)
            elif type(action) is Hold:
                self._told_held.setdefault(action.grant_id, set()).update(action.resources)
            elif type(action) is Cancel:
                for task_id, attempt in action.attempts:
                    if task_id in self._tasks and self._tasks[task_id].attempt == attempt:
                        self._tasks[task_id].cancel_told = True
                        if type(event) is HostEvacuated:
                            self._tasks[task_id].evacuated.add(attempt)
            elif type(action) is GrantChanged:
                self._hold(action)
            elif (
                type(action) is TaskChanged
                and action.state is TaskState.READY
                and action.detail.startswith("lost")
            ):
                if action.task_id in self._tasks:  # a record has the number that people see
                    self._not_unsent(action.task_id, self._tasks[action.task_id].attempt, "counts as lost")
            elif type(action) is JobEnded:
                self._ended(action)

        self._look_at_due(event)

    def _look_at_due(self, event: JobEvent) -> None:
        """What must be done at once has been: given up, cancelled."""
        if type(event) is Recall:
            self._recalled.update(grant_id for grant_id in event.grant_ids if grant_id in self._grants)
        elif type(event) is Lapsed:
            kept = [grant_id for grant_id in event.grant_ids if grant_id in self._grants]
            if kept:
                raise Broken(f"{self.job} keeps grant {kept[0]}, which has lapsed", *self._grants[kept[0]])
        elif type(event) is CancelTasks or (type(event) is Stop and not event.drain):
            task_ids = event.task_ids if type(event) is CancelTasks else tuple(self._tasks)
            for task_id in task_ids:
                task = self._tasks.get(task_id)
                if task is not None and task.sent and task.state is None and not task.cancel_told:
                    words = self._words(task_id)
                    raise Broken(f"{words} is to be cancelled, and its worker is not told", words)

    def _check_grant(self, submit: Submit) -> None:
        """A grant that is used was not recalled, and the hosts of its other resources know of it."""
        if submit.grant_id in self._recalled:
            raise Broken(f"{self.job} uses grant {submit.grant_id}, which was recalled", *submit.resources)
        untold = set(submit.resources[1:]) - self._told_held.get(submit.grant_id, set())
        if untold:
            raise Broken(f"{self.job} uses {submit.grant_id}, and the hosts of {untold} do not know", *untold)

    def _claim(self, claims: Claims) -> None:
        """A job that is back claims all that it holds, and nothing else; it wants what it will say."""
        self._wanted.clear()
        claimed = {grant.grant_id for grant in claims.grants}
        if claimed != self._grants.keys():
            raise Broken(f"{self.job} claims {sorted(claimed)}, and holds {sorted(self._grants)}")

    def extracted(self, task_id: TaskId, options: TaskOptions) -> None:
        """The engine has handed out a task."""
        if task_id in self._tasks and self._tasks[task_id].state is not None:
            raise Broken(f"task {task_id} is handed out again", self._words(task_id))
        task = self._tasks.setdefault(task_id, _Task())
        task.may_rerun, task.attempts = options.may_rerun, options.attempts

    def injected(self, task_id: TaskId) -> None:
        """The engine has got a result."""
        task, words = self._tasks.get(task_id), self._words(task_id)
        if task_id >= FIRST_TASK_ID:
            raise Broken(f"{words}, which ran again for its data, was injected", words)
        if task is None or task.state is not (TaskState.FINISHED if self._journaled else None):
            raise Broken(f"{words} was injected, and is {task and task.state}", words)
        if task.taken_in:
            raise Broken(f"{words} was injected again", words)
        if task.after and not self._tasks[task.after].taken_in:
            raise Broken(
                f"{words} was injected before {self._words(task.after)}, whose result it takes", words
            )
        task.taken_in = True

    def began(self, run: Run) -> None:
        """An attempt begins in compute."""
        task = self._tasks.get(run.task_id)
        if task is None:
            raise Broken(f"task {run.task_id} of {run.job} runs and is unknown", self._words(run.task_id))
        task.runs += 1
        if task.runs > 1 and not task.may_rerun:
            raise Broken(f"task {run.task_id}, which may run once, runs again", self._words(run.task_id))

    def arrived(self, submit: Submit) -> None:
        """A RIF has been given attempts."""
        for submission in submit.submissions:
            self._not_unsent(submission.task_id, submission.attempt, "reached a host")

    def _not_unsent(self, task_id: TaskId, attempt: int, what: str) -> None:
        task = self._tasks.get(task_id)
        if task is not None and attempt in task.unsent:
            words = self._words(task_id)
            raise Broken(f"{words}: attempt {attempt} was said never to be sent, and {what}", words)

    def _words(self, task_id: TaskId) -> str:
        return f"task {task_id} of {self.job}"

    def _hold(self, record: GrantChanged) -> None:
        held = self._grants.setdefault(record.grant_id, set())
        if record.held:
            held.update(record.resources)
        else:
            held.difference_update(record.resources)
        if not held:
            del self._grants[record.grant_id]
            self._recalled.discard(record.grant_id)
            self._told_held.pop(record.grant_id, None)

    def _reported(self, outcome: Outcome) -> None:
        task = self._tasks.get(outcome.task_id)
        if task is not None and task.attempt == outcome.attempt:
            has_failed = task.sent and outcome.reason is Reason.FAILED
            task.failures += has_failed and outcome.attempt not in task.evacuated
            kind = outcome.error.kind if outcome.error is not None else ""
            if task.sent and outcome.reason is Reason.RETURNED and kind in _UNBEGUN:
                task.untaken.add(outcome.attempt)
            task.sent = False
            task.reported.add(outcome.attempt)

    def _lost(self, names: set[ResourceId]) -> None:
        for task in self._tasks.values():
            if task.sent and not names.isdisjoint(task.resources):
                task.sent = False

    def _withheld(self, event: Withheld) -> None:
        for task in self._tasks.values():
            after = task.sent and task.number > event.after
            if after and event.concerns(task.resources[0], task.grant_id):
                task.unsent.add(task.attempt)

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
            if not submission.options.may_rerun:
                raise Broken(f"{words} may not run again, and does for its data", words)
        task = self._tasks.get(submission.task_id)
        if task is None or task.state is not None:
            raise Broken(f"{words} is submitted, and is {task and task.state}", words)
        if task.sent:
            raise Broken(f"{words} is submitted again while attempt {task.attempt} is under way", words)
        if submission.attempt <= task.attempt:
            raise Broken(f"{words}: attempt {submission.attempt} follows {task.attempt}", words)
        if task.attempts is not None and task.failures >= (task.attempts if task.may_rerun else 1):
            raise Broken(
                f"{words} is submitted after {task.failures} failures; it has {task.attempts}", words
            )
        task.attempt, task.sent, task.cancel_told = submission.attempt, True, False
        self._submissions += 1
        task.number = self._submissions
        task.resources, task.grant_id = submit.resources, submit.grant_id
        task.after = 0
        if submission.after is not None:
            task.after, attempt = submission.after
            if not (submission.options.may_rerun and len(submit.resources) == 1):
                raise Broken(f"{words} has its worker to itself, and is sent behind another task", words)
            before = self._tasks.get(task.after)
            if before is None or before.attempt != attempt or before.grant_id != task.grant_id:
                raise Broken(f"{words} is sent behind {submission.after}, which is not there", words)

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
            if not 1 <= done.tries <= attempt - len(task.untaken):
                raise Broken(
                    f"{words} is said to have had {done.tries} attempts; it had {attempt}, and "
                    f"{len(task.untaken)} of them came back and had not begun",
                    words,
                )
        elif done.state is TaskState.FAILED:
            self._failed(task, done, words)
        task.state = done.state
        if done.outcome.error is not None and done.outcome.error.kind == "unknown":
            self._not_unsent(done.task_id, done.outcome.attempt, "fails as unknown")

    def _failed(self, task: _Task, done: TaskDone, words: str) -> None:
        """A task has failed for good, by its own error: it has no attempts left, or was to end anyway."""
        outcome = done.outcome
        own = outcome.reason is Reason.FAILED and outcome.attempt > 0
        own = own and outcome.error is not None and outcome.error.kind != "refused"
        may_again = task.may_rerun and task.attempts is not None and task.failures < task.attempts
        if own and may_again and not (task.cancelled or self._is_stopping):
            raise Broken(f"{words} has failed after {task.failures} of {task.attempts} attempts", words)
        self._is_stopping = True  # nothing else of the job gets another attempt

    def _ended(self, ended: JobEnded) -> None:
        if self._grants:
            grant_id, names = next(iter(self._grants.items()))
            raise Broken(f"{self.job} {ended.state} with grant {grant_id} in hand", *names)
        wanted = {shape: credit for shape, credit in self._wanted.items() if credit}
        if wanted:
            raise Broken(f"{self.job} {ended.state}, and wants grants still: {wanted}")
        for task_id, task in self._tasks.items():
            if task.state is None:
                words = self._words(task_id)
                raise Broken(f"{self.job} {ended.state}, but {words} has not ended", words)
            if ended.state == "finished" and task.state is TaskState.FAILED and not self._has_cancelled:
                raise Broken(f"{self.job} finished with a failed task", self._words(task_id))


def check_items(name: str, found: Counter[int], expected: Counter[int], excused: int) -> None:
    """See that all values are there as often as a plain loop makes them.

    Args:
        name: whose values they are.
        found: the values.
        expected: those of the loop.
        excused: how many may be missing: their tasks were lost too often, or cancelled.

    Raises:
        Broken: one came twice, or is none that there can be, or too many are missing.
    """
    if more := found - expected:
        value, count = more.most_common(1)[0]
        raise Broken(f"{name}: {value!r} came {count} times more than once into the graph")
    missing = expected - found
    if missing.total() > excused:
        raise Broken(f"{name}: {missing.total()} items never came, {next(iter(missing))!r} for one")
