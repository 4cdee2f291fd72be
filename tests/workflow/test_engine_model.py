"""The engine against a naive reading of Petri nets that looks at everything anew for every firing (WE-1)."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gspc_trio.core.code import split_outputs
from gspc_trio.core.task import Task, TaskError, TaskState
from gspc_trio.workflow import marking as marking_module
from gspc_trio.workflow import search
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.runtime import RunningTransition
from gspc_trio.workflow.search import Binding
from tests.workflow.model import PLACES, add_up, flat, marking, nets, observe
from tests.workflow.support import CODEC, compute, next_task, reloaded

TOKENS_MAX = 40


class Naive:
    """What is on the places: values only, changed by the rules of the net and nothing else."""

    def __init__(self, net: Net) -> None:
        self.places = {name: list(place.initial) for name, place in net.places.items()}

    def fire(self, transition: RunningTransition, binding: Binding, engine: WorkflowEngine) -> None:
        """Take tokens, at the positions where the engine takes them."""
        gone: dict[str, list[int]] = {}
        for arc, tokens in zip(transition.description.inputs, flat(binding), strict=True):
            ids = [id(token) for token in engine.running.places[arc.place]]
            if arc.consumed:
                gone.setdefault(arc.place, []).extend(ids.index(id(token)) for token in tokens)
        for name, positions in gone.items():
            for position in sorted(positions, reverse=True):
                del self.places[name][position]

    def produce(self, transition: RunningTransition, taken: list[list[Any]], value: Any) -> None:
        description = transition.description
        outputs = split_outputs(value, description.outputs)
        for arc in description.output_arcs:
            if arc.output >= 0:
                self.places[arc.place] += outputs[arc.output]
            elif arc.each:
                self.places[arc.place] += taken[arc.forwarded]
            else:
                self.places[arc.place].append(taken[arc.forwarded][0])


def values_of(binding: Binding, engine: WorkflowEngine) -> list[list[Any]]:
    return [[engine.codec.decode(token) for token in tokens] for tokens in flat(binding)]


class EngineMachine(RuleBasedStateMachine):
    """Puts, tasks that end in every way, dumps and loads, in any order."""

    @initialize(net=nets())
    def start(self, net: Net) -> None:
        self.net = net
        self.naive = Naive(net)
        self.engine = observe(WorkflowEngine(net, {}, **CODEC))
        self.watch()
        self.states: dict[int, TaskState] = {}

    def watch(self) -> None:
        """Have every firing done by the naive places too."""
        running, naive, engine = self.engine.running, self.naive, self.engine
        observed = running.next_ready

        def next_ready() -> tuple[RunningTransition, Binding] | None:
            assert marking(engine) == naive.places
            found = observed()
            if found is not None:
                transition, binding = found
                taken = values_of(binding, engine)
                naive.fire(transition, binding, engine)
                if transition.description.is_inline:
                    arcs = zip(transition.description.inputs, taken, strict=True)
                    naive.produce(
                        transition,
                        taken,
                        add_up(**{arc.name: tokens if arc.is_batch else tokens[0] for arc, tokens in arcs}),
                    )
            return found

        running.next_ready = next_ready  # type: ignore[method-assign]

    def in_state(self, *states: TaskState) -> list[int]:
        return [task_id for task_id, state in self.states.items() if state in states]

    @rule(port=st.sampled_from(PLACES[:-1]), values=st.lists(st.integers(0, 6), min_size=1, max_size=4))
    def put(self, port: str, values: list[int]) -> None:
        if sum(map(len, self.naive.places.values())) < TOKENS_MAX:
            self.engine.put(port, values)
            self.naive.places[port] += values

    @rule(twice=st.booleans())
    def next(self, twice: bool) -> None:
        if twice:
            self.next(False)
        task_id = next_task(self.engine)
        if task_id is None:
            assert next_task(self.engine) is None
        else:
            assert self.states.get(task_id, TaskState.READY) is TaskState.READY
            self.states[task_id] = TaskState.READY

    @precondition(lambda self: self.in_state(TaskState.READY))
    @rule(data=st.data())
    def extract(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(self.in_state(TaskState.READY)))
        task = self.engine.extract(task_id)
        activity = self.engine.activities[task_id]
        description = activity.transition.description
        expected = [
            tokens if arc.is_batch else tokens[0]
            for arc, tokens in zip(description.inputs, values_of(activity.binding, self.engine), strict=True)
        ]
        assert [pickle.loads(argument) for argument in task.arguments] == expected
        self.states[task_id] = TaskState.SUBMITTED

    @precondition(lambda self: self.in_state(TaskState.SUBMITTED))
    @rule(data=st.data(), one=st.integers(0, 6), many=st.lists(st.integers(0, 6), max_size=2))
    def end(self, data: st.DataObject, one: int, many: list[int]) -> None:
        task_id = data.draw(st.sampled_from(self.in_state(TaskState.SUBMITTED)))
        how = data.draw(st.sampled_from([TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED]))
        activity = self.engine.activities[task_id]
        if how is TaskState.FAILED:
            assert self.engine.fail(task_id, TaskError("ValueError", "boom")) is None
        elif how is TaskState.CANCELLED:
            assert self.engine.cancelled(task_id) is None
        else:
            value = {"one": one, "many": many}
            taken = values_of(activity.binding, self.engine)
            outputs = split_outputs(value, activity.transition.description.outputs)
            self.engine.inject(task_id, tuple(tuple(map(pickle.dumps, tokens)) for tokens in outputs))
            self.naive.produce(activity.transition, taken, value)
        self.states[task_id] = how

    @precondition(lambda self: self.in_state(TaskState.FAILED, TaskState.CANCELLED))
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(self.in_state(TaskState.FAILED, TaskState.CANCELLED)))
        self.engine.restore(task_id)
        del self.states[task_id]  # until next returns it again

    @rule()
    def dump_and_load(self) -> None:
        self.engine = observe(reloaded(self.engine))
        self.watch()
        for task_id in self.in_state(TaskState.READY, TaskState.SUBMITTED):
            del self.states[task_id]

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "naive"):
            self.engine.check()
            assert marking(self.engine) == self.naive.places
            for task_id, state in self.states.items():
                assert self.engine.state(task_id) is state
            out = Counter(
                self.engine.activities[task_id].transition.description.name
                for task_id in self.in_state(TaskState.READY, TaskState.SUBMITTED)
            )
            for name, transition in self.net.transitions.items():
                assert transition.in_flight is None or out[name] <= transition.in_flight


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=40, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)


def run_steps(
    net: Net, steps: list[int], loads: list[bool], puts: Sequence[str] = ()
) -> tuple[list[Any], dict[str, list[Any]], list[str]]:
    """Extract and inject one task at a time; where ``loads`` says so, go on with a loaded dump."""
    engine = WorkflowEngine(net, {}, **CODEC)
    extracted: list[Task] = []
    history: list[Any] = []
    for index, step in enumerate(steps):
        if index < len(puts):
            engine.put(puts[index], [index])
        if step % 2 or not extracted:
            task_id = next_task(engine)
            if task_id is not None:
                extracted.append(engine.extract(task_id))
                history.append(extracted[-1])
        else:
            task = extracted.pop(step % len(extracted))
            engine.inject(task.task_id, compute(engine, task))
        if loads[index % len(loads)]:
            engine = reloaded(engine)
            again = [engine.extract(engine.next() or 0) for _ in extracted]
            assert again == sorted(extracted, key=lambda task: task.task_id)
            engine.check()
    return history, marking(engine), engine.explain_stuck()


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    net=nets(),
    steps=st.lists(st.integers(0, 50), min_size=5, max_size=40),
    loads=st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_a_run_that_is_dumped_and_loaded_in_between_is_the_same_run(
    net: Net, steps: list[int], loads: list[bool]
) -> None:
    assert run_steps(net, steps, loads) == run_steps(net, steps, [False])


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(net=nets(), steps=st.lists(st.integers(0, 50), min_size=5, max_size=40), choices=st.integers(1, 5))
def test_a_run_whose_searches_pause_is_the_same_run(net: Net, steps: list[int], choices: int) -> None:
    expected = run_steps(net, steps, [False])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "PAUSE_CHOICES", choices)
        assert run_steps(net, steps, [False]) == expected


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    net=nets(),
    steps=st.lists(st.integers(0, 50), min_size=5, max_size=40),
    loads=st.lists(st.booleans(), min_size=1, max_size=5),
    puts=st.lists(st.sampled_from(PLACES[:-1]), max_size=5),
)
def test_a_run_whose_values_become_tokens_late_is_the_same_run(
    net: Net, steps: list[int], loads: list[bool], puts: list[str]
) -> None:
    expected = run_steps(net, steps, loads, puts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marking_module, "STOCK_DRAWN", 0)
        assert run_steps(net, steps, loads, puts) == expected
