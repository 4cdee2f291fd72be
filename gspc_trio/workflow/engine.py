"""The workflow engine: one net, its tokens, and the tasks that are under way (GSPC19 2.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gspc_trio.core.code import CodeEntry
from gspc_trio.core.ids import TaskId
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.staging import Named
from gspc_trio.core.task import Task, TaskError, TaskState
from gspc_trio.workflow.calls import TransitionFailed
from gspc_trio.workflow.in_flight import TaskGroups
from gspc_trio.workflow.marking import StockedPlace
from gspc_trio.workflow.net import Net, Transition, input_values
from gspc_trio.workflow.net_state import FiringNet
from gspc_trio.workflow.search import Chance, Searching, SearchPaused
from gspc_trio.workflow.settings import sized
from gspc_trio.workflow.state import (
    FORMAT,
    TRANSITIONS,
    Activity,
    check_dump,
    check_tasks,
    dump_activities,
    dump_aside,
    dump_held,
    dump_net,
    held_tokens,
    load_activities,
    load_aside,
    load_held,
    load_net,
)
from gspc_trio.workflow.structure import NetPlan
from gspc_trio.workflow.tokens import AskedToken, Asker, Plain, Token, TokenCodec, Value

FIRINGS_MAX = 16
"""Inline transitions that fire before :meth:`WorkflowEngine.next` returns None though there is more to do."""

RESTORABLE = frozenset({TaskState.SUBMITTED, TaskState.FAILED, TaskState.CANCELLED})
"""States from which a task can be made ready again."""


class WorkflowEngine(FiringNet):
    """Runs one net: says which tasks are ready, and takes their results in (WE-1).

    Inline transitions fire inside :meth:`next`, some at a time: :attr:`has_more` says whether to ask once
    more. What a firing costs does not grow with tokens and transitions that it does not touch. There is no
    cancel: to stop a workflow, stop extracting.

    Args:
        net: the workflow.
        values: input port -> values of its tokens.
        dumps: value -> bytes, for the arguments of tasks.
        loads: bytes -> value, for conditions, inline transitions and the outputs.
        join: encodings of some values -> encoding of the list of them; without it, ``take`` arcs decode and
            encode.

    Attributes:
        named: names of published data among the values; :meth:`resolve` says what stands for it.
        ports: what comes from outside, and is taken off.
        has_more: whether :meth:`next` has returned None so that others have their turn, and not for want of
            anything to do.
        is_searching: whether that was so because it looks at many tokens.
        firings_max: so many inline transitions fire before :meth:`next` returns None to be asked again.
        discarded: extracted tasks of groups that have ended: to be cancelled, and taken off this list.

    Raises:
        WorkflowError: the net makes no sense, or the values do not fit it.
    """

    dependents = None
    """Nobody says which task of a net takes which result before it is there."""

    def __init__(
        self,
        net: Net,
        values: Mapping[str, Iterable[object]] | None = None,
        *,
        dumps: Callable[[object], bytes],
        loads: Callable[[bytes], object],
        join: Callable[[Sequence[bytes]], bytes] | None = None,
    ) -> None:
        chance = None if net.seed is None else Chance(net.seed)
        self._prepare(NetPlan(net), TokenCodec(dumps, loads, join), chance)
        self._begin(input_values(net, values or {}))

    def _begin(self, given: Mapping[str, Sequence[object]]) -> None:
        """Put the tokens of the beginning onto the places."""
        for name, place in self.running.places.items():
            values_there = given.get(name, place.description.initial)
            is_range = isinstance(values_there, range)
            named = () if is_range else [value.name for value in values_there if type(value) is Named]
            if isinstance(place, StockedPlace) and not named:
                place.fill(values_there)
                continue
            self.named.update(named)
            for value in values_there:
                place.put(Token(value))
        self.running.begin_counting({})
        if self.running.references is not None:
            self.running.references.begin()
        self.ports.begin(given)

    def _prepare(self, plan: NetPlan, codec: TokenCodec, chance: Chance | None) -> None:
        FiringNet.__init__(self, plan, codec, chance)
        self.code_table: list[CodeEntry] = plan.code_table
        self.named: set[str] = set()
        self._code_ids, self._variants, self._distances = plan.code_ids, plan.variants, plan.distances
        self._again: dict[TaskId, None] = {}  # ordered: to be returned by next once more
        self.has_more: bool = False
        self.discarded: list[TaskId] = []
        self._groups = TaskGroups()
        for running in self.running.transitions.values():
            if running.description.ends_groups >= 0:
                running.on_groups = self._end_groups
        self.firings_max = FIRINGS_MAX
        self._paused_at = 0
        self.is_searching: bool = False

    def resolve(self, found: Mapping[str, object]) -> None:
        """Say what stands for published data, before anything runs: name -> value."""
        for place in self.running.places.values():
            for token in place:
                if type(token.value) is Named:
                    token.value = found[token.value.name]

    # The scheduler's side

    def next(self) -> TaskId | None:
        """Return the id of a task that is ready, each once, or None; inline transitions fire on the way.

        Raises:
            TransitionFailed: a condition or an inline transition raised, or inline transitions have fired so
                often that they would for ever; the tokens are still there.
        """
        self.has_more = self.is_searching = False
        running = self.running
        if running.stops and running.is_stopped:
            return None
        if self._again and (again := self._next_again()) is not None:
            return again
        while True:
            try:
                found = running.next_ready()
            except SearchPaused:
                self.has_more = self.is_searching = True
                return None
            if found is None:
                return None
            transition, binding = found
            if not transition.description.is_inline:
                grouped = transition.description.group is not None
                try:
                    group = transition.group_of(binding) if grouped else None
                    transition.consume(binding)
                except TransitionFailed as error:
                    self._set_aside(transition, binding, error)
                    continue
                if running.references is not None:
                    self._settle(transition, held=binding)
                if (flight := transition.flight) is not None:
                    flight.unended += 1
                    flight.out += 1
                self.last_task_id = task_id = self.last_task_id + 1
                if transition.order is not None:
                    transition.order.began(task_id)
                self.activities[task_id] = Activity(transition, binding)
                self._counts[TaskState.READY] += 1
                if grouped:
                    self._groups.add(task_id, group)
                self._endless.reset()
                return task_id
            self._fire(transition, binding)
            if running.stops and running.is_stopped:
                return None
            if self.inline_fired - self._paused_at >= self.firings_max:
                self._paused_at = self.inline_fired
                self.has_more = True
                return None

    def _next_again(self) -> TaskId | None:
        """Return the next task that is to be handed out once more, None if those wait until others end."""
        while self._again:
            task_id = next(iter(self._again))
            del self._again[task_id]
            flight = self.activities[task_id].transition.flight
            if flight is None:
                return task_id
            if flight.out < flight.most:
                flight.out += 1
                return task_id
            flight.waiting[task_id] = None
        return None

    def fire(self, number: int) -> bool:
        """Fire so many inline transitions, as :meth:`next` did when it was not asked again; say if it could.

        Raises:
            TransitionFailed: see :meth:`next`.
        """
        while number:
            try:
                found = self.running.next_ready()
            except SearchPaused:
                continue
            if found is None or not found[0].description.is_inline:
                return False
            self._fire(*found)
            number -= 1
        return True

    def searching(self) -> Searching:
        """Return at which transition :meth:`next` has paused when it said that it is searching."""
        name = self.running.next_name()
        return () if name is None else (name,)

    def search(self, searching: Searching) -> bool:
        """Look at transitions as :meth:`next` did until it paused; say if it could.

        What cannot fire is not looked at again until tokens come, so the order of firings depends on it.

        Raises:
            TransitionFailed: see :meth:`next`.
        """
        return not searching or (isinstance(searching[0], str) and self.running.look_until(searching[0]))

    def extract(self, task_id: TaskId) -> Task:
        """Return a ready task; it counts as extracted from now on.

        Raises:
            IllegalEvent: the task is not ready.
        """
        activity = self._activity(task_id, "extracted", TaskState.READY)
        if self._again or activity.transition.flight is not None:
            self._keep_out(task_id, activity)
        description = activity.transition.description
        encode, binding = self.codec.encode, activity.binding
        arguments = tuple([encode(binding[index]) for index in self._arguments[description.name]])
        if description.stage is not None:
            arguments = self._with_plan(description, binding, arguments)
        self._change(activity, TaskState.SUBMITTED)
        variants = self._variants.get(description.name)
        if variants is not None and description.size is not None:
            variants = sized(variants, description.size, self.codec, binding)
        return Task(
            task_id,
            description.name,
            self._code_ids[description.name],
            arguments,
            description.shape,
            description.options,
            self._distances[description.name],
            variants,
        )

    def _with_plan(
        self, description: Transition, binding: Sequence[Token], arguments: tuple[bytes, ...]
    ) -> tuple[bytes, ...]:
        """Return the arguments of a task with those that only become files, and the plan of its files."""
        stage = description.stage
        assert stage is not None
        places = {arc: [index] for index, arc in enumerate(self._arguments[description.name])}
        count = len(arguments)
        for arc in stage.arcs:
            if arc not in places:
                parts = self.codec.encode_parts(binding[arc])
                places[arc] = list(range(len(arguments), len(arguments) + len(parts)))
                arguments += parts
        values = {name: self.codec.decode(binding[arc]) for name, arc in stage.names}
        return (*arguments, stage.plan(count, places, values).encoded())

    def inject(self, task_id: TaskId, values: tuple[tuple[bytes, ...], ...]) -> None:
        """Put the result of an extracted task into the workflow.

        Args:
            task_id: the task.
            values: for each output of its code, the encoded tokens.

        Raises:
            IllegalEvent: the task is not extracted, or the values do not fit its outputs.
        """
        if self._groups.is_over(task_id):
            return
        activity = self._activity(task_id, "injected", TaskState.SUBMITTED)
        description = activity.transition.description
        outputs = description.outputs
        if len(values) != len(outputs):
            raise IllegalEvent(
                f"task {task_id} ({description.name}) has {len(outputs)} outputs, not {len(values)}"
            )
        for (_, is_each), tokens in zip(outputs, values, strict=True):
            if not is_each and len(tokens) != 1:
                raise IllegalEvent(
                    f"task {task_id} ({description.name}) has {len(tokens)} values for one token"
                )
        if (order := activity.transition.order) is None:
            activity.transition.produce_result(task_id, activity.binding, values)
        else:
            order.ended(task_id, activity.binding, values)
        self._finish(task_id, activity)
        if description.group is not None:
            self._groups.remove(task_id)
        if description.ends_groups >= 0:
            self._end_groups(self.codec.loads(values[description.ends_groups][0]))

    def _finish(self, task_id: TaskId, activity: Activity) -> None:
        """A task is over, and what it makes is on its places."""
        activity.transition.release(activity.binding)
        if self.running.references is not None:
            self._settle(activity.transition, was_held=activity.binding)
        self._endless.reset()
        self._change(activity, TaskState.FINISHED)
        del self.activities[task_id]
        if activity.transition.flight is not None:
            self._landed(activity, was_out=True)

    def _end_groups(self, groups: Value) -> None:
        """Drop the tasks of these groups: their tokens are gone, and nothing comes of them."""
        for task_id in self._groups.end(groups):
            activity = self.activities[task_id]
            flight, state = activity.transition.flight, activity.state
            self._counts[state] -= 1
            self._counts[TaskState.FINISHED] += 1
            waits = self._waits(task_id, activity)
            del self.activities[task_id]
            if flight is not None and state in (TaskState.READY, TaskState.SUBMITTED):
                self._landed(activity, was_out=not waits)
            activity.transition.release(activity.binding)
            if activity.transition.order is not None:
                activity.transition.order.dropped(task_id)
            if self.running.references is not None:
                self._settle(activity.transition, was_held=activity.binding)
            if state is TaskState.SUBMITTED:
                self._groups.dropped[task_id] = None
                self.discarded.append(task_id)

    def fail(self, task_id: TaskId, error: TaskError) -> None:
        """The extracted task has failed; it keeps the tokens it took.

        Raises:
            IllegalEvent: the task is not extracted.
        """
        if self._groups.is_over(task_id):
            return
        activity = self._activity(task_id, "failed", TaskState.SUBMITTED)
        self._change(activity, TaskState.FAILED)
        activity.error = error
        if activity.transition.flight is not None:
            self._landed(activity, was_out=True)

    def cancelled(self, task_id: TaskId) -> None:
        """The ready or extracted task was cancelled; it keeps the tokens it took.

        Raises:
            IllegalEvent: the task is neither ready nor extracted.
        """
        if self._groups.is_over(task_id):
            return
        activity = self._activity(task_id, "cancelled", TaskState.READY, TaskState.SUBMITTED)
        self._change(activity, TaskState.CANCELLED)
        waits = self._waits(task_id, activity)
        if activity.transition.flight is not None:
            self._landed(activity, was_out=not waits)

    def restore(self, task_id: TaskId) -> None:
        """Make a task that was extracted, failed or cancelled ready again: :meth:`next` returns it once more.

        Raises:
            IllegalEvent: the task is ready, finished or unknown.
        """
        activity = self._activity(task_id, "restored", *RESTORABLE)
        flight = activity.transition.flight
        if flight is not None:
            if activity.state is TaskState.SUBMITTED:
                self._landed(activity, was_out=True)
            flight.unended += 1
        self._change(activity, TaskState.READY)
        activity.error = None
        self._again[task_id] = None

    def lift_limits(self, lifted: bool) -> None:
        """Let any number of tasks be in flight, or only as many as the workflow says again."""
        for transition in self.running.transitions.values():
            if transition.flight is not None:
                transition.flight.lift(lifted)
                transition.mark()

    def restore_all(self) -> None:
        """Make all tasks ready again that have not finished, and try again what has failed."""
        self._put_back()
        for task_id, activity in sorted(self.activities.items()):
            if activity.state is not TaskState.READY:
                self.restore(task_id)

    def under_way(self) -> Iterable[TaskId]:
        """Return the tasks that have begun and not finished."""
        return self.activities

    def is_known(self, task_id: TaskId) -> bool:
        """Return whether a task has begun, and something may yet be heard of it."""
        return task_id in self.activities or task_id in self._groups.dropped

    def known(self) -> Iterable[TaskId]:
        """Return the tasks of which something may yet be heard."""
        return [*self.activities, *(one for one in self._groups.dropped if one not in self.activities)]

    def is_under_way(self, task_id: TaskId) -> bool:
        """Return whether a task has begun and not finished."""
        return task_id in self.activities

    def is_limited(self, task_id: TaskId) -> bool:
        """Return whether how this task ends decides at once what else may begin."""
        activity = self.activities.get(task_id)
        return activity is not None and activity.transition.flight is not None

    def _landed(self, activity: Activity, *, was_out: bool) -> None:
        """A task of which only so many are in flight has ended: another one may begin."""
        flight = activity.transition.flight
        assert flight is not None
        flight.unended -= 1
        flight.out -= was_out
        waiting = flight.next_waiting()
        if waiting is not None:
            self._again[waiting] = None
        activity.transition.mark()

    def _waits(self, task_id: TaskId, activity: Activity) -> bool:
        """Take a task from those that are to be handed out once more; return whether it was there."""
        flight = activity.transition.flight
        there = task_id in self._again or (flight is not None and task_id in flight.waiting)
        self._again.pop(task_id, None)
        if flight is not None:
            flight.waiting.pop(task_id, None)
        return there

    def _keep_out(self, task_id: TaskId, activity: Activity) -> None:
        """Count a task as handed out that is extracted though :meth:`next` has not returned it."""
        if self._waits(task_id, activity) and activity.transition.flight is not None:
            activity.transition.flight.out += 1

    def take_over(self, task_id: TaskId) -> Task | None:
        """Return None: only one with a journal waits for results of an earlier job server."""

    def _activity(self, task_id: TaskId, what: str, *states: TaskState) -> Activity:
        activity = self.activities.get(task_id)
        if activity is None:
            ended = "finished" if 0 < task_id <= self.last_task_id else "unknown"
            raise IllegalEvent(f"task {task_id} cannot be {what}: it is {ended}")
        if activity.state not in states:
            raise IllegalEvent(f"task {task_id} cannot be {what}: it is {activity.state}")
        return activity

    def _change(self, activity: Activity, state: TaskState) -> None:
        assert state in TRANSITIONS[activity.state], f"from {activity.state} to {state}"
        self._counts[activity.state] -= 1
        self._counts[state] += 1
        activity.state = state

    # The user's side

    def put(self, port: str, values: Iterable[object], asker: Asker | None = None) -> None:
        """Add tokens to an input port while the workflow runs: all of them, or none.

        Args:
            port: name of the port.
            values: of the tokens.
            asker: who waits for an answer to them.

        Raises:
            WorkflowError: there is no such input port, it is closed, or ``values`` is no list.
            BadValue: one of them cannot be sent.
        """
        given = input_values(self.net, {port: values}, complete=False)[port]
        tokens = [Token(one) if asker is None else AskedToken(one, None, asker) for one in given]
        encoded = tuple(map(self.codec.encode, tokens))  # it raises here, and not later: the job would end
        self._endless.reset()
        self.ports.put(port, tokens, encoded)

    def dump(self) -> dict[str, Plain]:
        """Return the whole state as plain data, at any time (WE-1)."""
        running = self.running
        tokens, activities = dump_net(running, self.codec), dump_activities(self.activities, self.codec)
        if self.ranges is not None:
            tokens["ready"] += self.ranges.marked()
            activities += self.ranges.dump()
        dropped: dict[str, Plain] = {"others": self.others} if self.others else {}
        if self._groups.dropped:
            dropped["dropped"] = list(self._groups.dropped)
        if self.aside:
            dropped["aside"] = dump_aside(self.aside, self.codec)
        chance = running.chance
        drawn: dict[str, Plain] = {} if chance is None else {"chance": [chance.seed, chance.firing]}
        return (
            dropped
            | drawn
            | {
                "format": FORMAT,
                "net": {"places": list(running.places), "transitions": list(running.transitions)},
                "tokens": tokens,
                "activities": activities,
                "held": dump_held(running, self.codec),
                "last_task_id": self.last_task_id,
                "ports": self.ports.dump(),
            }
        )

    @classmethod
    def load(
        cls,
        net: Net,
        state: Mapping[str, Plain],
        *,
        dumps: Callable[[object], bytes],
        loads: Callable[[bytes], object],
        join: Callable[[Sequence[bytes]], bytes] | None = None,
    ) -> WorkflowEngine:
        """Return an engine that goes on where :meth:`dump` was called (WE-2).

        Tasks that were ready or extracted are ready again; failed and cancelled ones stay so until restored.

        Raises:
            WorkflowError: the dump is none, or of another net.
        """
        engine = cls.__new__(cls)
        chance = Chance(*state["chance"]) if isinstance(state, Mapping) and "chance" in state else None
        engine._prepare(NetPlan(net), TokenCodec(dumps, loads, join), chance)
        engine._load(state)
        return engine

    def _load(self, state: Mapping[str, Plain]) -> None:
        """Take over the state of a dump."""
        running = self.running
        check_dump(state, running)
        load_net(running, state["tokens"])
        activities = load_activities(state["activities"], running, self.codec)
        self.activities = activities
        self.aside.extend(load_aside(state.get("aside", ()), running, self.codec))
        taken = [*self.aside, *((activity.transition, activity.binding) for activity in activities.values())]
        running.begin_counting(held_tokens(taken) if running.counters else {})
        if (references := running.references) is not None:
            references.begin()
            for transition, binding in taken:
                self._settle(transition, held=binding)
        self._groups.dropped = dict.fromkeys(state.get("dropped", ()))
        self.last_task_id: TaskId = state["last_task_id"]
        load_held(state.get("held", ()), running, self.codec, activities)
        self.ports.load(state.get("ports", {}))
        self.others: int = state.get("others", 0)
        counts = self._counts
        counts[TaskState.FINISHED] = self.last_task_id - len(activities) - self.others
        for task_id, activity in sorted(activities.items()):
            counts[activity.state] += 1
            activity.transition.fired += 1
            if activity.transition.description.group is not None:
                self._groups.add(task_id, activity.transition.group_of(activity.binding))
            if activity.state is TaskState.READY:
                self._again[task_id] = None
                if (flight := activity.transition.flight) is not None:
                    flight.unended += 1

    def check(self) -> None:
        """Assert that queues, states and counts agree."""
        super().check()
        for transition in self.running.transitions.values():
            check_tasks(transition, self.activities, self._again)
