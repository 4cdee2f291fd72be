"""The task graph against a naive one that looks at all tasks for every question."""

from __future__ import annotations

import pickle

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gspc_trio.core.task import TO_COME, Task, TaskError, TaskState
from gspc_trio.workflow.graph import Ref, TaskGraph

READY, SUBMITTED, FINISHED = TaskState.READY, TaskState.SUBMITTED, TaskState.FINISHED
FAILED, CANCELLED = TaskState.FAILED, TaskState.CANCELLED
ENDED = (FINISHED, FAILED, CANCELLED)


class NaiveTask:
    def __init__(self, references: list[int], distance: int, keep: bool) -> None:
        self.references = references
        self.distance = distance
        self.keep = keep
        self.state = READY
        self.handed_out = False


class GraphMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.graph = TaskGraph()
        self.tasks: dict[int, NaiveTask] = {}

    # The naive graph

    def is_there(self, task_id: int) -> bool:
        task = self.tasks[task_id]
        return task.state not in ENDED or task.keep or any(self.holds(user, task_id) for user in self.tasks)

    def holds(self, user_id: int, task_id: int) -> bool:
        user = self.tasks[user_id]
        return task_id in user.references and user.state is not FINISHED and self.is_there(user_id)

    def can_run(self, task_id: int) -> bool:
        task = self.tasks[task_id]
        return task.state is READY and all(self.tasks[i].state is FINISHED for i in task.references)

    def has_arguments(self, task_id: int) -> bool:
        return all(self.tasks[i].state is FINISHED for i in self.tasks[task_id].references)

    def break_users(self, task_id: int) -> set[int]:
        broken: set[int] = set()
        for user_id, user in self.tasks.items():
            if task_id in user.references and user.state not in ENDED:
                user.state = FAILED
                broken |= {user_id} | self.break_users(user_id)
        return broken

    def pick(self, data: st.DataObject, *states: TaskState) -> int | None:
        there = [i for i, task in self.tasks.items() if task.state in states and self.is_there(i)]
        return data.draw(st.sampled_from(there)) if there else None

    # What happens

    @rule(data=st.data(), number=st.integers(0, 3), keep=st.booleans())
    def add(self, data: st.DataObject, number: int, keep: bool) -> None:
        usable = [
            i for i, task in self.tasks.items() if task.state not in (FAILED, CANCELLED) and self.is_there(i)
        ]
        references = [data.draw(st.sampled_from(usable)) for _ in range(number)] if usable else []
        task_id = self.graph.add("f", 0, [b"x", *map(Ref, references)], keep=keep)
        assert task_id == len(self.tasks) + 1
        distance = min((self.tasks[i].distance - 1 for i in references), default=0)
        self.tasks[task_id] = NaiveTask(references, distance, keep)

    @rule()
    def next(self) -> None:
        task_id = self.graph.next()
        waiting = {i for i, task in self.tasks.items() if self.can_run(i) and not task.handed_out}
        if task_id is None:
            assert waiting == set()
        else:
            assert task_id in waiting
            self.tasks[task_id].handed_out = True

    @rule(data=st.data())
    def extract(self, data: st.DataObject) -> None:
        handed_out = [i for i, task in self.tasks.items() if task.handed_out and task.state is READY]
        if handed_out:
            task_id = data.draw(st.sampled_from(handed_out))
            task = self.tasks[task_id]
            results = tuple(b"%d" % i for i in task.references)
            expected = Task(task_id, "f", 0, (b"x", *results), distance=task.distance)
            assert self.graph.extract(task_id) == expected
            task.state = SUBMITTED

    @rule(data=st.data())
    def extract_ahead(self, data: st.DataObject) -> None:
        task_id = self.pick(data, SUBMITTED)
        if task_id is None:
            return
        users = [i for i in self.tasks if self.holds(i, task_id)]
        follower = self.graph.follower(task_id)
        user = self.tasks[users[0]] if len(users) == 1 else None
        others = {i for i in user.references if i != task_id} if user is not None else set()
        ready = all(self.tasks[i].state is FINISHED for i in others)
        if user is None or user.state is not READY or not ready:
            assert follower is None
            return
        assert follower is not None
        assert follower.task_id == users[0]
        results = tuple(TO_COME if i == task_id else b"%d" % i for i in user.references)
        expected = Task(users[0], "f", 0, (b"x", *results), distance=user.distance)
        assert self.graph.extract(users[0], 1) == expected
        user.state = SUBMITTED

    @rule(data=st.data())
    def inject(self, data: st.DataObject) -> None:
        task_id = self.pick(data, SUBMITTED)
        if task_id is not None and self.has_arguments(task_id):
            self.graph.inject(task_id, ((b"%d" % task_id,),))
            self.tasks[task_id].state = FINISHED

    @rule(number=st.integers(1, 4))
    def run(self, number: int) -> None:
        for _ in range(number):
            task_id = self.graph.next()
            if task_id is not None:
                self.graph.extract(task_id)
                self.graph.inject(task_id, ((b"%d" % task_id,),))
                self.tasks[task_id].state = FINISHED

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        task_id = self.pick(data, SUBMITTED)
        if task_id is not None:
            failed = self.graph.fail(task_id, TaskError("ValueError", "boom"))
            self.tasks[task_id].state = FAILED
            assert {item.task_id for item in failed} == self.break_users(task_id)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task_id = self.pick(data, READY, SUBMITTED)
        if task_id is not None:
            failed = self.graph.cancelled(task_id)
            self.tasks[task_id].state = CANCELLED
            assert {item.task_id for item in failed} == self.break_users(task_id)

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        task_id = self.pick(data, FAILED, CANCELLED, SUBMITTED)
        if task_id is not None:
            task = self.tasks[task_id]
            if all(self.tasks[i].state is FINISHED for i in task.references):
                self.graph.restore(task_id)
                task.state, task.handed_out = READY, False

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        if self.tasks:
            task_id = data.draw(st.sampled_from(sorted(self.tasks)))
            self.graph.forget(task_id)
            self.tasks[task_id].keep = False

    @precondition(lambda self: len(self.tasks) > 1)
    @rule()
    def dump_and_load(self) -> None:
        self.graph = TaskGraph.load(pickle.loads(pickle.dumps(self.graph.dump())))
        for task in self.tasks.values():
            if task.state in (READY, SUBMITTED):
                task.state, task.handed_out = READY, False

    @invariant()
    def agree(self) -> None:
        self.graph.check()
        there = {i for i in self.tasks if self.is_there(i)}
        assert {i for i in self.tasks if i in self.graph} == there
        assert {i: self.graph.state(i) for i in there} == {i: self.tasks[i].state for i in there}
        counts = {state: sum(task.state is state for task in self.tasks.values()) for state in TaskState}
        del counts[TaskState.RUNNING]
        assert self.graph.counts() == counts


TestGraphMachine = GraphMachine.TestCase
TestGraphMachine.settings = settings(
    max_examples=30, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
