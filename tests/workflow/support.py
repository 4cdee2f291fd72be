"""Runs nets to their end inside a test: tasks are computed right where they are extracted."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gspc_trio.components.job.engine_wrapper import Engine
from gspc_trio.core.code import split_outputs
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import Task
from gspc_trio.workflow.activities import engine_of, loaded_engine
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net

CODEC: dict[str, Any] = {"dumps": pickle.dumps, "loads": pickle.loads}


def engine_for(net: Net, **values: Iterable[Any]) -> WorkflowEngine:
    return engine_of(net, values, **CODEC)


def reloaded(engine: WorkflowEngine) -> WorkflowEngine:
    """A new engine that was loaded from a dump which has been bytes in between."""
    return loaded_engine(engine.net, pickle.loads(pickle.dumps(engine.dump())), **CODEC)


def next_task(engine: Engine) -> TaskId | None:
    """What an engine hands out next, however long its inline transitions fire before."""
    while (task_id := engine.next()) is None and engine.has_more:
        pass
    return task_id


def compute(engine: WorkflowEngine, task: Task) -> tuple[tuple[bytes, ...], ...]:
    """What a compute process would answer for this task."""
    entry = engine.code_table[task.code_id]
    values = [pickle.loads(data) for data in task.arguments]
    count = len(values) - len(entry.parameters)
    result = entry.run(*values[:count], **dict(zip(entry.parameters, values[count:], strict=True)))
    return tuple(tuple(map(pickle.dumps, tokens)) for tokens in split_outputs(result, entry.outputs))


class Driver:
    """Drives an engine; ``order`` picks which task ends next, ``between`` is called after each."""

    def __init__(
        self,
        engine: WorkflowEngine,
        order: Callable[[int], int] = lambda _number: 0,
        between: Callable[[WorkflowEngine], WorkflowEngine] = lambda engine: engine,
    ) -> None:
        self.engine = engine
        self.fired: list[str] = []
        self._order = order
        self._between = between

    def run(self, tasks_max: int = 1_000_000) -> Driver:
        extracted: list[Task] = []
        while True:
            while (task_id := next_task(self.engine)) is not None:
                extracted.append(self.engine.extract(task_id))
            self.engine.check()
            if not extracted or len(self.fired) == tasks_max:
                return self
            task = extracted.pop(self._order(len(extracted)))
            self.fired.append(task.name)
            self.engine.inject(task.task_id, compute(self.engine, task))
            before, self.engine = self.engine, self._between(self.engine)
            if before is not self.engine:
                extracted.clear()  # a loaded engine hands them out again


def run(net: Net, values: Mapping[str, Iterable[Any]] | None = None) -> Driver:
    return Driver(engine_for(net, **(values or {}))).run()
