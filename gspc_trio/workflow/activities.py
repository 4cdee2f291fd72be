"""Activities: firings of transitions that are nets, each with tokens of its own, which fail as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from gspc_trio.core.ids import TaskId
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.net import NetStatus, PlaceStatus, TransitionStatus
from gspc_trio.core.task import Task, TaskError, TaskState
from gspc_trio.workflow.calls import TransitionFailed
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.flow import Flow, moved
from gspc_trio.workflow.net import Net, Subnet
from gspc_trio.workflow.search import Chance, Searching
from gspc_trio.workflow.settings import numbered
from gspc_trio.workflow.state import Activity
from gspc_trio.workflow.structure import NetPlan
from gspc_trio.workflow.tokens import AskedToken, Plain, Token, TokenCodec, Value

_FIRED = 0
"""Stands for a step after which there may be more to do; no task has this number."""


class ActivityEngine(WorkflowEngine):
    """An engine for a net some of whose transitions are nets.

    To this engine an activity is a task of its own: it has a number, holds the tokens that it took, and is
    counted and limited as tasks are. It is never handed out; the engine of its net is asked for tasks in its
    place. Tasks have their numbers from the outermost engine, so all engines around one know it by the same.

    Activities that have begun go on before others begin, each after one inline firing of another one. What
    happens when depends on the tokens alone, so a journal that is replayed does it again.

    Args: see :class:`WorkflowEngine`.
    """

    def _prepare(self, plan: NetPlan, codec: TokenCodec, chance: Chance | None) -> None:
        super()._prepare(plan, codec, chance)
        self.has_more: bool
        self.is_searching: bool
        self.inline_fired: int
        self.last_task_id: TaskId
        self.others: int
        self._inside: dict[TaskId, WorkflowEngine] = {}  # by activity
        self._activity_of: dict[TaskId, TaskId] = {}
        self._busy: dict[TaskId, None] = {}  # ordered: activities that may have something to do
        self._with_again: dict[TaskId, None] = {}  # activities with tasks to be handed out once more
        self._fired_inside: Counter[str] = Counter()  # by those that are over
        self._finished_inside = 0
        self._over = 0

    # What is to be done next

    def next(self) -> TaskId | None:
        """Return the id of a task that is ready, each once, or None; see WorkflowEngine.

        Raises:
            TransitionFailed: see there; it may have been in an activity.
        """
        self.has_more = self.is_searching = False
        if (again := self._next_again()) is not None:
            return again
        until = self.inline_fired + self.firings_max
        while True:
            found = self._step()
            if found != _FIRED:
                self.is_searching = self.has_more
                return found
            if self.inline_fired >= until:
                self.has_more = True
                return None

    def fire(self, number: int) -> bool:
        """Fire so many inline transitions; see WorkflowEngine."""
        until = self.inline_fired + number
        while (again := self._next_again()) is not None:
            self.extract(again)
        while self.inline_fired < until:
            if self._step() != _FIRED and not self.has_more:
                return False
        return True

    def searching(self) -> Searching:
        """Return where :meth:`next` has paused: in which activities, and at which transition."""
        if not self._busy:
            return super().searching()
        activity_id = next(iter(self._busy))
        return (activity_id, *self._inside[activity_id].searching())

    def search(self, searching: Searching) -> bool:
        """Look at transitions as :meth:`next` did until it paused; see WorkflowEngine."""
        if not searching:
            return True
        while self._busy:
            activity_id = next(iter(self._busy))
            if activity_id == searching[0]:
                return self._inside[activity_id].search(searching[1:])
            self.has_more = False
            if self._ask(activity_id) is not None:
                return False
        return super().search(searching)

    def _next_again(self) -> TaskId | None:
        while (task_id := super()._next_again()) is not None:
            activity = self.activities[task_id]
            if activity.transition.description.subnet is None:
                return task_id
            self._go_on(task_id, activity)
        while self._with_again:
            activity_id = next(iter(self._with_again))
            if (task_id := self._inside[activity_id]._next_again()) is not None:
                return task_id
            del self._with_again[activity_id]
        return None

    def _step(self) -> TaskId | None:
        """Do the next thing; return a task that is ready, or None if there is nothing to do now."""
        self.has_more = False
        if self.running.stops and self.running.is_stopped:
            return None
        while self._busy:
            activity_id = next(iter(self._busy))
            try:
                found = self._ask(activity_id)
            except TransitionFailed as error:
                if not self.keeps_going:
                    raise
                self._fail_whole(activity_id, TaskError("failed", str(error)))
                found = _FIRED
            if found is not None or self.has_more:
                return found
        fired = self.inline_fired
        self._paused_at = fired + 1 - self.firings_max  # one firing at a time
        task_id = super().next()
        if task_id is None:
            return _FIRED if self.inline_fired > fired else None
        activity = self.activities[task_id]
        if activity.transition.description.subnet is None:
            return task_id
        self._go_on(task_id, activity)
        self.inline_fired += 1
        return _FIRED

    def _ask(self, activity_id: TaskId) -> TaskId | None:
        """Ask the engine of an activity for a task; None and not ``has_more``: it has nothing to do."""
        inner = self._inside[activity_id]
        inner.others += self.last_task_id - inner.last_task_id
        inner.last_task_id = before = self.last_task_id
        fired = inner.inline_fired
        try:
            task_id = inner.next()
        finally:
            self.last_task_id = inner.last_task_id
            self.others += inner.last_task_id - before
            self.inline_fired += inner.inline_fired - fired
        if task_id is not None:
            self._activity_of[task_id] = activity_id
            return task_id
        if inner.has_more and inner.inline_fired == fired:  # it looks at many tokens
            self.has_more = True
            return None
        if inner.has_more:
            del self._busy[activity_id]
            self._busy[activity_id] = None  # behind the others
            return _FIRED
        if not inner.activities:
            self._complete(activity_id)
            self.inline_fired += 1
            return _FIRED
        del self._busy[activity_id]
        return None

    # The life of an activity

    def _engine_for(self, activity: Activity) -> WorkflowEngine:
        _, plan = self.plan.inside[activity.transition.description.name]
        kind = ActivityEngine if plan.inside else WorkflowEngine
        inner = kind.__new__(kind)
        inner._prepare(plan, self.codec, self.running.chance)
        inner.firings_max = 1
        inner.discarded, inner.failures = self.discarded, self.failures
        if self.notes_flow:
            inner.note_flow()
        return inner

    def _go_on(self, activity_id: TaskId, activity: Activity) -> None:
        """Let a ready activity begin, or go on after it had failed."""
        self._change(activity, TaskState.SUBMITTED)
        inner = self._inside.get(activity_id)
        if inner is None:
            inner = self._inside[activity_id] = self._engine_for(activity)
            inner._begin({})
            for token, name in zip(activity.binding, _subnet(activity).inputs, strict=True):
                if name:
                    inner.running.places[name].put(moved(token))
        else:
            self._with_again[activity_id] = None
        self._busy[activity_id] = None

    def _complete(self, activity_id: TaskId) -> None:
        """Nothing is left to do in an activity: put what it has made onto the places behind it.

        Raises:
            TransitionFailed: it does not fit there; the activity is as it was.
        """
        activity, inner = self.activities[activity_id], self._inside[activity_id]
        transition, subnet = activity.transition, _subnet(activity)
        groups = transition.description.ends_groups
        try:
            made = [
                self._tokens(inner.running.places[name], split)
                for name, split in zip(subnet.outputs, subnet.split, strict=True)
            ]
        except Exception as error:
            raise TransitionFailed(transition.description.name, "its result does not fit", error) from error
        ended = [self.codec.decode(token) for token in made[groups]] if groups >= 0 else []
        for target in transition.targets:
            for token in made[target.output]:
                target.place.put(moved(token))
        for arc, output in subnet.answers:
            asked = activity.binding[arc]
            if isinstance(asked, AskedToken) and made[output]:
                asked.asker.answer(made[output][0])
        self._forget(activity_id)
        self._finish(activity_id, activity)
        for names in ended:
            self._end_groups(names)

    def _tokens(
        self, tokens: Iterable[Token], split: Callable[[object], Iterable[object]] | None
    ) -> list[Token]:
        if split is None:
            return list(tokens)
        return [Token(value) for token in tokens for value in split(self.codec.decode(token))]

    def _forget(self, activity_id: TaskId) -> None:
        """An activity is over: its tasks are remembered only if they have yet to be cancelled elsewhere."""
        inner = self._inside.pop(activity_id)
        self._busy.pop(activity_id, None)
        self._with_again.pop(activity_id, None)
        self._over += 1
        self._finished_inside += inner.counts()[TaskState.FINISHED]
        self._fired_inside.update(_fired(inner))
        for task_id in inner._groups.dropped:
            self._groups.dropped[task_id] = None
            del self._activity_of[task_id]

    def _fail_whole(self, activity_id: TaskId, error: TaskError | None) -> None:
        """Cancel all tasks of an activity, which has failed then; without an error it was cancelled."""
        self._abandon(activity_id)
        if error is None:
            super().cancelled(activity_id)
        else:
            name = self.name_of(activity_id)
            self.failures.append(f"activity {activity_id} ({name}) failed: {error.message}")
            super().fail(activity_id, error)

    def _abandon(self, activity_id: TaskId) -> None:
        inner = self._inside[activity_id]
        self._busy.pop(activity_id, None)
        self._with_again.pop(activity_id, None)
        for task_id, activity in list(inner.activities.items()):
            state = activity.state
            if state not in (TaskState.READY, TaskState.SUBMITTED):
                continue
            if isinstance(inner, ActivityEngine) and task_id in inner._inside:
                inner._fail_whole(task_id, None)
                continue
            WorkflowEngine.cancelled(inner, task_id)
            if state is TaskState.SUBMITTED:
                inner._groups.dropped[task_id] = None
                inner.discarded.append(task_id)

    def _end_groups(self, groups: Value) -> None:
        """Drop the tasks of these groups, those in activities as well."""
        names = list(groups)
        super()._end_groups(names)
        for activity_id, inner in self._inside.items():
            if self.activities[activity_id].state is TaskState.SUBMITTED:
                inner._end_groups(names)
                self._busy[activity_id] = None

    # How tasks go and end

    def _inner(self, task_id: TaskId) -> WorkflowEngine | None:
        """Return the engine that has a task, None if this one has."""
        activity_id = self._activity_of.get(task_id)
        return None if activity_id is None else self._inside[activity_id]

    def extract(self, task_id: TaskId) -> Task:
        """Return a ready task; see WorkflowEngine."""
        inner = self._inner(task_id)
        if inner is None:
            return super().extract(task_id)
        task = inner.extract(task_id)
        name = self.activities[self._activity_of[task_id]].transition.description.name
        first_code, nearer = self.plan.inside[name][0], self._distances[name]
        variants = None if task.variants is None else numbered(task.variants, first_code)
        number, distance = task.code_id + first_code, task.distance + nearer
        return replace(task, code_id=number, distance=distance, variants=variants)

    def inject(self, task_id: TaskId, values: tuple[tuple[bytes, ...], ...]) -> None:
        """Put the result of an extracted task into the workflow; see WorkflowEngine."""
        inner = self._inner(task_id)
        if inner is None:
            super().inject(task_id, values)
            return
        _await_again(inner, task_id)
        inner.inject(task_id, values)
        self._endless.reset()
        self._ended(task_id, inner)

    def fail(self, task_id: TaskId, error: TaskError) -> None:
        """The extracted task has failed, and the activity that it is in; see WorkflowEngine."""
        inner = self._inner(task_id)
        if inner is None:
            super().fail(task_id, error)
            return
        why = f"task {task_id} ({inner.name_of(task_id)}) failed: {error.kind}: {error.message}"
        inner.fail(task_id, error)
        self._ended(task_id, inner, replace(error, kind="activity", message=why))

    def cancelled(self, task_id: TaskId) -> None:
        """The task was cancelled, and with it the activity that it is in; see WorkflowEngine."""
        inner = self._inner(task_id)
        if inner is None:
            super().cancelled(task_id)
            return
        inner.cancelled(task_id)
        self._ended(task_id, inner)

    def _ended(self, task_id: TaskId, inner: WorkflowEngine, error: TaskError | None = None) -> None:
        """A task of an activity has ended: the activity goes on, or has failed."""
        activity_id = self._activity_of[task_id]
        if self.activities[activity_id].state is TaskState.SUBMITTED:
            if inner.has_failed:
                self._fail_whole(activity_id, error)
            else:
                self._busy[activity_id] = None
        if not inner.is_known(task_id):
            del self._activity_of[task_id]

    def restore(self, task_id: TaskId) -> None:
        """Make a task ready again; see WorkflowEngine.

        Raises:
            IllegalEvent: see there; or the task is of an activity that has failed.
        """
        inner = self._inner(task_id)
        if inner is None:
            super().restore(task_id)
            return
        activity_id = self._activity_of[task_id]
        activity = self.activities[activity_id]
        if activity.state is not TaskState.SUBMITTED:
            name = activity.transition.description.name
            raise IllegalEvent(
                f"task {task_id} is of activity {activity_id} ({name}), which {activity.state} as a whole"
            )
        inner.restore(task_id)
        self._with_again[activity_id] = None

    def restore_all(self) -> None:
        """Make all tasks ready again that have not finished, also those of activities that have failed."""
        self._put_back()
        for task_id, activity in sorted(self.activities.items()):
            inner = self._inside.get(task_id)
            if inner is not None:
                inner.restore_all()
                for dropped in [one for one in inner._groups.dropped if one in inner.activities]:
                    del inner._groups.dropped[dropped]
                self._with_again[task_id] = None
            if inner is not None and activity.state is TaskState.SUBMITTED:
                self._busy[task_id] = None
            elif activity.state is not TaskState.READY:
                super().restore(task_id)

    def lift_limits(self, lifted: bool) -> None:
        """Let any number of tasks be in flight, or only as many as the workflow says again."""
        super().lift_limits(lifted)
        for inner in self._inside.values():
            inner.lift_limits(lifted)

    # What is known of it

    def under_way(self) -> Iterable[TaskId]:
        """Return the tasks that have begun and not finished."""
        own = (task_id for task_id in self.activities if task_id not in self._inside)
        return chain(own, *(inner.under_way() for inner in self._inside.values()))

    def is_under_way(self, task_id: TaskId) -> bool:
        """Return whether a task has begun and not finished."""
        inner = self._inner(task_id)
        return super().is_under_way(task_id) if inner is None else inner.is_under_way(task_id)

    def is_known(self, task_id: TaskId) -> bool:
        """Return whether a task has begun, and something may yet be heard of it."""
        return task_id in self._activity_of or super().is_known(task_id)

    def is_limited(self, task_id: TaskId) -> bool:
        """Return whether how this task ends decides at once what else may begin."""
        return task_id in self._activity_of or super().is_limited(task_id)

    def state(self, task_id: TaskId) -> TaskState:
        """Return the state of a task; see WorkflowEngine."""
        inner = self._inner(task_id)
        return super().state(task_id) if inner is None else inner.state(task_id)

    def name_of(self, task_id: TaskId) -> str:
        """Return the transition of a task under way."""
        inner = self._inner(task_id)
        return super().name_of(task_id) if inner is None else inner.name_of(task_id)

    def flow(self, task_id: TaskId) -> Flow:
        """Return what a task under way takes; see WorkflowEngine."""
        inner = self._inner(task_id)
        return super().flow(task_id) if inner is None else inner.flow(task_id)

    def given(self, task_id: TaskId) -> tuple[str, list[bytes]]:
        """Return the transition of a task under way, and its arguments; see WorkflowEngine."""
        inner = self._inner(task_id)
        return super().given(task_id) if inner is None else inner.given(task_id)

    def note_flow(self) -> None:
        """Note of each token from now on which tasks have made it, for :meth:`flow`."""
        super().note_flow()
        for inner in self._inside.values():
            inner.note_flow()

    def counts(self) -> dict[TaskState, int]:
        """Return the number of tasks in each state; activities are none."""
        counts = super().counts()
        for activity_id, inner in self._inside.items():
            counts[self.activities[activity_id].state] -= 1
            for state, number in inner.counts().items():
                counts[state] += number
        counts[TaskState.FINISHED] += self._finished_inside - self._over
        return counts

    def describe(self) -> NetStatus:
        """Return the net and the nets in it, and how far all activities together are."""
        own = super().describe()
        places = {place.name: place for place in own.places}
        transitions = {transition.name: self._seen(transition) for transition in own.transitions}
        for inner in chain(self._models(), self._inside.values()):
            told = inner.describe()
            for place in told.places:
                there = places.get(place.name)
                tokens = place.tokens + (there.tokens if there is not None else 0)
                places[place.name] = PlaceStatus(place.name, place.kind, tokens)
            for transition in told.transitions:
                same = transitions.get(transition.name)
                transitions[transition.name] = transition.with_counts_of(same)
        for name, fired in self._fired_inside.items():
            one = transitions[name]
            transitions[name] = replace(one, fired=one.fired + fired, done=one.done + fired)
        return NetStatus(tuple(places.values()), tuple(transitions.values()))

    def _seen(self, told: TransitionStatus) -> TransitionStatus:
        """Return a transition as people see it: activities that have begun are running."""
        begun = told.states.get(TaskState.SUBMITTED, 0)
        if not begun or self.running.transitions[told.name].description.subnet is None:
            return told
        states = {state: number for state, number in told.states.items() if state is not TaskState.SUBMITTED}
        return replace(told, states=states | {TaskState.RUNNING: begun})

    def _models(self) -> Iterator[WorkflowEngine]:
        """Return an engine without tokens for each net of activities: so they are known before any begins."""
        for transition in self.running.transitions.values():
            if transition.description.subnet is not None:
                yield self._engine_for(Activity(transition, []))

    def dump(self) -> dict[str, Plain]:
        """Return the whole state as plain data, at any time (WE-1)."""
        return super().dump() | {
            "inside": {activity_id: inner.dump() for activity_id, inner in self._inside.items()},
            "busy": list(self._busy),
            "over": [self._over, self._finished_inside],
        }

    def _load(self, state: Mapping[str, Plain]) -> None:
        super()._load(state)
        self._over, self._finished_inside = state.get("over", (0, 0))
        begun = {task_id for task_id, _, there, *_ in state["activities"] if there == TaskState.SUBMITTED}
        for activity_id, dumped in state.get("inside", {}).items():
            activity = self.activities[activity_id]
            inner = self._inside[activity_id] = self._engine_for(activity)
            inner._load(dumped)
            for task_id in inner.known():
                self._activity_of[task_id] = activity_id
            if activity_id in begun:
                self._keep_out(activity_id, activity)
                self._change(activity, TaskState.SUBMITTED)
                self._with_again[activity_id] = None
        self._busy = dict.fromkeys(state.get("busy", ()))

    def known(self) -> Iterable[TaskId]:
        """Return the tasks of which something may yet be heard, activities among them."""
        return chain(super().known(), self._activity_of)

    def check(self) -> None:
        """Assert that queues, states and counts agree, in all activities, too."""
        super().check()
        activities = {
            task_id
            for task_id, activity in self.activities.items()
            if activity.transition.description.subnet is not None
        }
        assert self._inside.keys() <= activities, "an activity is over and has an engine"
        assert self._busy.keys() <= self._inside.keys(), "an activity is over and has something to do"
        for activity_id, inner in self._inside.items():
            inner.check()
            state = self.activities[activity_id].state
            assert activity_id not in self._busy or state is TaskState.SUBMITTED, "it has failed, and goes on"
            assert inner.has_failed <= (state is not TaskState.SUBMITTED), "an activity has not failed as one"
            assert inner.activities or activity_id in self._busy or state is not TaskState.SUBMITTED
            for task_id in inner.under_way():
                assert self._activity_of[task_id] == activity_id, "a task is of no activity"


def _subnet(activity: Activity) -> Subnet:
    subnet = activity.transition.description.subnet
    assert subnet is not None, "it is no activity"
    return subnet


def _await_again(inner: WorkflowEngine, task_id: TaskId) -> None:
    """The result of a task has come that was to be cancelled with its activity: it is not done again."""
    activity = inner.activities.get(task_id)
    if activity is None or activity.state is not TaskState.CANCELLED:
        return
    inner._groups.dropped.pop(task_id, None)
    inner._change(activity, TaskState.READY)
    inner._change(activity, TaskState.SUBMITTED)
    if (flight := activity.transition.flight) is not None:
        flight.unended += 1
        flight.out += 1


def _fired(engine: WorkflowEngine) -> Counter[str]:
    """Return how often the transitions of an activity have fired, those of its own activities as well."""
    fired = Counter({name: one.fired for name, one in engine.running.transitions.items() if one.fired})
    if isinstance(engine, ActivityEngine):
        fired.update(engine._fired_inside)
    return fired


def engine_of(
    net: Net,
    values: Mapping[str, Iterable[object]] | None = None,
    *,
    dumps: Callable[[object], bytes],
    loads: Callable[[bytes], object],
    join: Callable[[Sequence[bytes]], bytes] | None = None,
) -> WorkflowEngine:
    """Return the engine that a net needs; see :class:`WorkflowEngine` for arguments and errors."""
    return _kind(net)(net, values, dumps=dumps, loads=loads, join=join)


def loaded_engine(
    net: Net,
    state: Mapping[str, Plain],
    *,
    dumps: Callable[[object], bytes],
    loads: Callable[[bytes], object],
    join: Callable[[Sequence[bytes]], bytes] | None = None,
) -> WorkflowEngine:
    """Return the engine that a net needs, with a state that was dumped; see ``WorkflowEngine.load``."""
    return _kind(net).load(net, state, dumps=dumps, loads=loads, join=join)


def _kind(net: Net) -> type[WorkflowEngine]:
    has_activities = any(transition.subnet is not None for transition in net.transitions.values())
    return ActivityEngine if has_activities else WorkflowEngine
