"""The executor's side of separate calls that travel in ranges, simulated from a seed.

Calls and their futures, ranges, table of calls, graph, job, scheduler and resource manager are the real ones.
Workers are simulated: they end ranges early, tell of the first calls while another one takes long, fail, and
are lost. Callers cancel at random, and some executors are shut down, or break. What is not kept is said by
:class:`BrokenCalls`.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from types import SimpleNamespace
from typing import cast

from gspc_trio.components.job.item_values import AWAITED
from gspc_trio.components.job.machine import Begin, JobAction, JobEvent, JobMachine, Look
from gspc_trio.components.job.scheduler.interface import CancelTasks, ResourcesUp, TaskDone
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.components.rm.events import Added, JobJoined
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Refuse, Release
from gspc_trio.components.worker.messages import Cancel, Finished, Submission, Submit, TakeBack
from gspc_trio.compute.code import ANSWER_HEAD
from gspc_trio.core.ids import ResourceId, TaskId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import (
    CORE,
    DEFAULT_OPTIONS,
    LastAttempt,
    Outcome,
    Reason,
    Requirement,
    Shape,
    TaskError,
)
from gspc_trio.executor.bulk import Maps, Owner
from gspc_trio.executor.call_table import CallTable
from gspc_trio.executor.codes import CodeTable
from gspc_trio.executor.futures import NOTHING, PENDING, Call, SomeTaskFuture, TaskFuture, TaskOwner
from gspc_trio.executor.submitted import MANY, CallsPart, SubmittedCalls
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.failures import ExecutorBroken

JOB = "j1"
CODE, OF_ITEMS, OTHER_CODE, OF_OTHERS = 1, 2, 3, 4
FAILS_EACH, LISTS_EACH = 17, 13
"""Of so many calls one fails, or returns a list, which travels encoded."""

OTHERS_EACH, MORE_EACH, WIDE_EACH = 5, 41, 29
"""Of so many calls one is of another function, has an argument more, or needs two cores; where some are."""

STRETCH = 130
"""So many calls are alike, or differ in what they have in common."""

GANG = Shape((Requirement("core"), Requirement("core")))

STEPS_MAX = 20_000
"""A world that is not done by then hangs."""

_FROM_RM = (Grant, Recall, Refuse, Lapsed)


class BrokenCalls(AssertionError):
    """What is promised of separate calls does not hold."""


def value_of_call(number: int) -> object:
    """Return what a call returns."""
    return [number] if number % LISTS_EACH == 0 else -number


def fails(number: int) -> bool:
    """Return whether a call fails."""
    return number % FAILS_EACH == 1


def traceback_of(number: int) -> str:
    """Return where a call has failed."""
    return f"in the function of call {number}"


def answer_of(numbers: list[int]) -> bytes:
    """Return what a worker says of the first calls of a range, as compute processes do."""
    results: list[object] = []
    encoded: dict[int, bytes] = {}
    errors: dict[int, list[object]] = {}
    for place, number in enumerate(numbers):
        value = value_of_call(number)
        is_plain = not fails(number) and not isinstance(value, list)
        results.append(value if is_plain else None)
        if fails(number):
            errors[place] = ["ValueError", f"call {number}", traceback_of(number), b""]
        elif not is_plain:
            encoded[place] = dumps(value)
    return dumps(ANSWER_HEAD.pack(len(numbers), len(errors)) + dumps([results, encoded, errors]))


class SeparateCalls:
    """A world of calls.

    Args:
        seed: of all its randomness.
        calls: how many are submitted.
        cores: how many workers there are.
        loss: probability that what a worker runs is lost.
        end: when it comes, "shutdown" cancels what has not begun, and "break" is the end of all; "": neither.

    Attributes:
        futures: of all calls.
        told: how often the end of each was told of.
        ranges: ranges that workers got.
    """

    def __init__(
        self, seed: int, calls: int = 300, cores: int = 3, loss: float = 0.05, end: str = ""
    ) -> None:
        self.random: Random = Random(seed)
        self._seed, self._cancels = seed, seed % 4 != 1
        self.now: float = 0.0
        self.futures: list[SomeTaskFuture] = []
        self.told: Counter[int] = Counter()
        self.ranges: int = 0
        self._calls_max, self._loss, self._cores, self._end_by = calls, loss, cores, end
        self._taken = 0  # calls that the loop has taken and that nobody had cancelled before
        self._error: Exception | None = None
        self._calls: deque[Call] = deque()
        self._cancelled: list[SomeTaskFuture] = []
        self._is_stirred = False
        self._lost: set[int] = set()  # calls that were computed, or may have been, and may be so again
        self._done: set[int] = set()  # calls whose result a worker has told
        self._at: dict[ResourceId, list[Submission]] = {}
        self._parts: set[TaskId] = set()  # ranges that were looked at
        self._given: dict[TaskId, int] = {}  # so many of a range were told ahead
        self.table: CallTable[SomeTaskFuture] = CallTable("executor", lambda _: True)
        self.job: JobMachine = JobMachine(
            JOB, "calls", self.table.graph, USUAL.scheduler(JOB), keep_going=True, open_ended=True
        )
        self.table.job = cast(Job, _job_of(self))
        owner = SimpleNamespace(stir=self._stir, capacity=lambda _: cores, is_elsewhere=False)
        settings = SimpleNamespace(may_have_ranges=True)
        self.maps: Maps = Maps(cast(Owner, owner), self.table, cast(JobSettings, settings), False)
        codes = SimpleNamespace(items_entry_of={CODE: OF_ITEMS, OTHER_CODE: OF_OTHERS}.get)
        self.job.count_more = self.maps.count
        self.submitted: SubmittedCalls = SubmittedCalls(self.maps, cast(CodeTable, codes), self._stir)
        self._owner = SimpleNamespace(
            forked=False, is_elsewhere=False, cancel=self._cancelled.append, check_may_wait=lambda: None
        )
        self.rm: ResourceManager = ResourceManager(1)
        resources = tuple(Resource(f"r1.core{number}", "core") for number in range(cores))
        self.rm.handle(Added(resources), 0.0)
        self.rm.handle(JobJoined(JOB), 0.0)
        self._tell(ResourcesUp(resources))
        self._tell(Begin())

    def _stir(self) -> None:
        self._is_stirred = True

    # What callers do

    def _stretch(self, number: int) -> int:
        """Return 0 for calls that are all alike; 1, 2, 4 or 7: they differ in one thing, or in all three."""
        return (0, 1, 2, 4, 7)[(number // STRETCH + self._seed) % 5]

    def code_of(self, number: int) -> int:
        """Return which function a call is of."""
        return OTHER_CODE if self._stretch(number) & 1 and number % OTHERS_EACH == 2 else CODE

    def values_of(self, number: int) -> tuple[object, ...]:
        """Return the arguments of a call."""
        return (number, "more") if self._stretch(number) & 2 and number % MORE_EACH == 3 else (number,)

    def shape_of(self, number: int) -> Shape:
        """Return what a call needs."""
        is_wide = self._stretch(number) & 4 and number % WIDE_EACH == 4 and self._cores > 1
        return GANG if is_wide else CORE

    def submit(self, count: int) -> None:
        """Submit further calls."""
        for number in range(len(self.futures), len(self.futures) + count):
            future: SomeTaskFuture = TaskFuture(cast(TaskOwner, self._owner))
            self._watch(future, number)
            self.futures.append(future)
            code_id, shape = self.code_of(number), self.shape_of(number)
            self._calls.append(
                Call(future, code_id, "work", NOTHING, shape, DEFAULT_OPTIONS, self.values_of(number))
            )

    def _watch(self, future: SomeTaskFuture, number: int) -> None:
        def note(_: object) -> None:
            self.told[number] += 1

        if self.random.random() < 0.5:
            future.tell_end(note)
        else:
            future.add_done_callback(note)

    def cancel_some(self) -> None:
        """Cancel some calls."""
        for future in self.random.sample(
            self.futures, min(len(self.futures), self.random.choice((1, 3, 40)))
        ):
            future.cancel()

    # What the executor's loop does

    def take(self) -> None:
        """Take calls and cancellations, as the loop does it."""
        while True:
            self._is_stirred = False
            self._taken += sum(call.future._state is PENDING for call in self._calls)
            self.submitted.gather(self._calls, len(self._calls), self._add)
            cancelled, self._cancelled[:] = list(self._cancelled), []
            if cancelled:
                self.submitted.end_cancelled(cancelled)
            for items in tuple(self.maps.active):
                items.look(self.now)
            self._check_parts()
            self._tell(Look())
            if not (self._is_stirred or self._cancelled):
                self._check_counts()
                return

    def _check_counts(self) -> None:
        """Each call that was taken is counted once, whatever has become of it."""
        counts = dict(self.job.counts())
        if sum(counts.values()) != self._taken or min(counts.values(), default=0) < 0:
            raise BrokenCalls(f"{self._taken} calls were taken, and counted are {counts}")

    def _check_parts(self) -> None:
        """Calls that were cancelled before are in no new range."""
        for task_id, part in self.table.parts.items():
            if task_id not in self._parts:
                self._parts.add(task_id)
                assert isinstance(part, CallsPart)
                if any(future.done() for future in part.futures):
                    raise BrokenCalls(f"range {task_id} computes what has ended before")

    def _add(self, call: Call) -> None:
        if call.future._state is not PENDING:
            return
        arguments = [dumps(value) for value in call.values]
        task_id = self.table.graph.add(call.name, call.code_id, arguments, call.shape, call.options)
        call.future._task_id = task_id
        self.table.receivers[task_id] = call.future

    def _tell(self, event: JobEvent) -> None:
        events: deque[JobEvent] = deque([event])
        while events:
            for action in self.job.handle(events.popleft(), self.now):
                self._do(action, events)

    def _do(self, action: JobAction, events: deque[JobEvent]) -> None:
        if isinstance(action, TaskDone):
            self.table.done(action)
        elif isinstance(action, Submit):
            self._arrived(action)
        elif isinstance(action, Demand | Release):
            events.extend(it for it in self.rm.handle(action, self.now) if isinstance(it, _FROM_RM))
        elif isinstance(action, TakeBack):
            events.extend(self._give_back(action.resource_id, action.attempts, Reason.RETURNED))
        elif isinstance(action, Cancel):
            events.extend(self._give_back(action.resource_id, action.attempts, Reason.CANCELLED))

    # What workers do

    def _arrived(self, submit: Submit) -> None:
        at = self._at.setdefault(submit.resources[0], [])
        for submission in submit.submissions:
            numbers = numbers_of(submission)
            self.ranges += submission.code_id in (OF_ITEMS, OF_OTHERS)
            self._check_call(submission, numbers, submit)
            is_wanted = [self.futures[number]._state is PENDING for number in numbers]
            heard = all(self.futures[number] not in self._cancelled for number in numbers)
            if heard and not any(is_wanted):
                raise BrokenCalls(f"calls {numbers} are sent though nobody wants them")
            for number in numbers:
                future = self.futures[number]
                if future.done() and not future.cancelled() and number not in self._lost:
                    raise BrokenCalls(f"call {number} is sent though it has ended")
                if number in self._under_way():
                    raise BrokenCalls(f"call {number} is at two workers")
            at.append(submission)

    def _check_call(self, submission: Submission, numbers: list[int], submit: Submit) -> None:
        """It is the function of each call, with its arguments, and where it can run."""
        of_many = {CODE: OF_ITEMS, OTHER_CODE: OF_OTHERS}
        for place, number in enumerate(numbers):
            code_id, needed = self.code_of(number), len(self.shape_of(number).requirements)
            if submission.code_id not in (code_id, of_many[code_id]) or needed != len(submit.resources):
                raise BrokenCalls(f"call {number} is computed as another one")
            if rows_of(submission)[place] != self.values_of(number):
                raise BrokenCalls(f"call {number} has the arguments of another one")

    def _under_way(self) -> set[int]:
        there = (submission for at in self._at.values() for submission in at)
        return {number for submission in there for number in numbers_of(submission)}

    def _give_back(
        self, resource_id: ResourceId, attempts: tuple[tuple[TaskId, int], ...], reason: Reason
    ) -> list[JobEvent]:
        at = self._at.get(resource_id, [])
        gone = [it for it in at if (it.task_id, it.attempt) in attempts]
        if reason is Reason.RETURNED:
            gone = [it for it in gone if it is not at[0]]
        if not gone:
            return []
        self._at[resource_id] = [it for it in at if it not in gone]
        return [Finished(JOB, resource_id, tuple(Outcome(it.task_id, it.attempt, reason) for it in gone))]

    def work(self) -> None:
        """Let one worker go on."""
        busy = [resource_id for resource_id, at in self._at.items() if at]
        if not busy:
            return
        resource_id = self.random.choice(busy)
        head = self._at[resource_id][0]
        numbers = numbers_of(head)
        if self.random.random() < self._loss:
            self._lost.update(numbers[self._given.get(head.task_id, 0) :])  # of those before was told
            self._end(resource_id, Outcome(head.task_id, head.attempt, Reason.LOST, started_s=self.now))
        elif head.code_id in (OF_ITEMS, OF_OTHERS):
            self._go_on(resource_id, head, numbers)
        elif fails(numbers[0]):
            error = TaskError("ValueError", f"call {numbers[0]}", traceback_of(numbers[0]))
            self._end(resource_id, Outcome(head.task_id, head.attempt, Reason.FAILED, error=error))
        else:
            self._end(resource_id, self._finished(head, dumps(value_of_call(numbers[0])), 1))

    def _go_on(self, resource_id: ResourceId, head: Submission, numbers: list[int]) -> None:
        """A range ends, early or not, or another worker tells of its first calls."""
        done, given = len(numbers), self._given.get(head.task_id, 0)
        if self.random.random() < 0.3:
            done = self.random.randint(given, len(numbers))
        if self.random.random() < 0.2 and not given and done < len(numbers):
            self._given[head.task_id] = done
            self.submitted.take_first(head.task_id, answer_of(numbers[:done]))
            if self._cancels and self.random.random() < 0.4:
                self.futures[numbers[done]].cancel()  # the one that takes long
            return
        if done:
            self._end(resource_id, self._finished(head, answer_of(numbers[:done]), done))

    def _finished(self, head: Submission, data: bytes, done: int) -> Outcome:
        duration_s = 1e-5 * done
        self.now += duration_s
        return Outcome(head.task_id, head.attempt, Reason.FINISHED, ((data,),), duration_s=duration_s)

    def _end(self, resource_id: ResourceId, outcome: Outcome) -> None:
        del self._at[resource_id][0]
        self._tell(Finished(JOB, resource_id, (outcome,)))

    # All of it

    def run(self) -> None:
        """Run until all calls have ended.

        Raises:
            BrokenCalls: something does not hold.
        """
        random = self.random
        for number in range(MANY):  # so many others wait that these travel in ranges
            self.table.receivers[-1 - number] = TaskFuture(cast(TaskOwner, self._owner))
        end_at = random.randint(20, 60) if self._end_by else STEPS_MAX
        for step in range(STEPS_MAX):
            if step == end_at:
                self._end_all()
                if self._end_by == "break":
                    break
            chance = random.random()
            if len(self.futures) < self._calls_max and chance < 0.2:
                self.submit(min(random.choice((1, 5, 70, 120)), self._calls_max - len(self.futures)))
                if self._cancels and random.random() < 0.3:  # before the loop has seen it
                    self.futures[-1].cancel()
            elif chance < 0.23 and self.futures and self._cancels:
                self.cancel_some()
            else:
                self.work()
            self._pass_time()
            self.take()
            self.job.check()
            is_last = len(self.futures) == self._calls_max
            if is_last and all(it.done() for it in self.futures) and not any(self._at.values()):
                break
        self._check()

    def _end_all(self) -> None:
        """The executor is shut down, and what has not begun is cancelled; or it breaks."""
        self._calls_max = len(self.futures)
        if self._end_by == "break":
            self._error = ExecutorBroken("it was the end")
            for call in tuple(self._calls):
                call.future.fail(self._error)
            self.maps.end(self._error)
            self.table.fail_all(self._error)
            return
        self.take()
        running = self.job.scheduler.is_running
        waiting = [it for task_id, it in self.table.receivers.items() if task_id > 0 and not running(task_id)]
        for future in waiting:
            future.give_up()
        self.submitted.end_cancelled(waiting)
        begun = {number for at in self._at.values() for one in at[:1] for number in numbers_of(one)}
        self.maps.cancel_waiting()
        self.take()
        for number, future in enumerate(self.futures):
            if not (future.done() or number in begun):
                raise BrokenCalls(f"call {number} has not begun, and is not cancelled by the shutdown")

    def _pass_time(self) -> None:
        due = [at for items in self.maps.active if (at := items.machine.deadline()) is not None]
        due += [at for machine in (self.job, self.rm) if (at := machine.deadline()) is not None]
        if due and not any(self._at.values()):
            self.now = max(self.now, min(due))
        if due and min(due) <= self.now:
            for items in tuple(self.maps.active):
                items.tell(Tick())
            self._tell(Tick())
            for answer in self.rm.handle(Tick(), self.now):
                if isinstance(answer, _FROM_RM):
                    self._tell(answer)

    def _check(self) -> None:
        """What each future says is true, and what became of all is counted."""
        for number, future in enumerate(self.futures):
            if not future.done():
                raise BrokenCalls(f"call {number} never ends")
            if self.told[number] != 1:
                raise BrokenCalls(f"of the end of call {number} was told {self.told[number]} times")
            if future.cancelled():
                continue
            error = future.exception(0)
            if self._error is not None and isinstance(error, ExecutorBroken):
                continue
            lost = error is not None and number in self._lost and "lost" in str(error)
            if not lost and fails(number) != (error is not None and f"call {number}" in str(error)):
                raise BrokenCalls(f"call {number} has the error {error!r}")
            if error is not None and not lost and traceback_of(number) not in str(error.__cause__):
                raise BrokenCalls(f"call {number} has the traceback of another one: {error.__cause__}")
            if error is None and future.result(0) != value_of_call(number):
                raise BrokenCalls(f"call {number} has the result of another one: {future.result(0)}")
        if self.submitted.pending():
            raise BrokenCalls("ended calls are taken for pending ones")
        if not self._error and any(one._chunks for one in self.submitted._of.values() if one is not None):
            raise BrokenCalls("calls that have ended are kept")


def numbers_of(submission: Submission) -> list[int]:
    """Return which calls a task computes."""
    return [cast(int, row[0]) for row in rows_of(submission)]


def rows_of(submission: Submission) -> list[tuple[object, ...]]:
    """Return the arguments of each call that a task computes."""
    if submission.code_id in (OF_ITEMS, OF_OTHERS):
        kind, *columns = submission.arguments
        assert kind == AWAITED
        return list(zip(*map(loads, columns), strict=True))
    return [tuple(map(loads, submission.arguments))]


def _job_of(world: SeparateCalls) -> SimpleNamespace:
    """Return what the table of calls sees of a job's shell."""

    def cancel(task_ids: list[TaskId]) -> None:
        world._tell(CancelTasks(tuple(task_ids)))

    def last_attempt(done: TaskDone) -> LastAttempt:
        return LastAttempt(done.name, done.tries)

    return SimpleNamespace(tracer=None, machine=world.job, cancel=cancel, last_attempt=last_attempt)
