"""A task of a task graph, and how it becomes plain data and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import Requirement, Shape, Task, TaskError, TaskOptions, TaskState

ENDED = frozenset({TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED})
"""States in which a task no longer runs nor waits to run."""

TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.READY: frozenset({TaskState.SUBMITTED, TaskState.FAILED, TaskState.CANCELLED}),
    TaskState.SUBMITTED: frozenset(
        {TaskState.READY, TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED}
    ),
    TaskState.FAILED: frozenset({TaskState.READY}),
    TaskState.CANCELLED: frozenset({TaskState.READY}),
    TaskState.FINISHED: frozenset(),
}
"""Where a task of a graph may go from where it is; one that is ready fails when one that it needs does."""


class Ref(Struct, frozen=True):
    """Stands for the result of another task among the arguments of a task."""

    task_id: TaskId


Argument: TypeAlias = bytes | Ref


class FailedThrough(Struct, frozen=True):
    """A task that failed because one that it depends on failed or was cancelled.

    Attributes:
        task_id, name: which.
        error: kind and cause are those of the task where it began, which the message names.
    """

    task_id: TaskId
    name: str
    error: TaskError


class Node:
    """A task that is still needed.

    Attributes:
        task: what it runs; without arguments if it refers to other tasks.
        arguments: those of a task that refers to others, else None.
        references: ids of the tasks that it refers to, each once.
        keep: whether its owner has not forgotten it.
        state: READY also while it waits for others.
        missing: number of tasks that it waits for.
        is_queued: whether it is among those that ``next`` will return.
        users: the tasks that refer to it and have not finished or gone, by their ids.
        result: its encoded result.
        error: why it failed.
    """

    __slots__ = (
        "arguments",
        "error",
        "is_queued",
        "keep",
        "missing",
        "references",
        "result",
        "state",
        "task",
        "users",
    )

    def __init__(
        self,
        task: Task,
        arguments: tuple[Argument, ...] | None,
        keep: bool,
        references: Sequence[TaskId] = (),
    ) -> None:
        self.task = task
        self.arguments = arguments
        if len(references) > 1 and len(set(references)) < len(references):
            references = tuple(dict.fromkeys(references))
        self.references = references
        self.keep = keep
        self.state = TaskState.READY
        self.missing = 0
        self.is_queued = True
        self.users: dict[TaskId, Node] | None = None
        self.result: bytes | None = None
        self.error: TaskError | None = None


def dump_node(node: Node) -> list[Any]:
    """Return a node as plain data; users, waiting and queue follow from the nodes together."""
    task = node.task
    arguments = task.arguments if node.arguments is None else node.arguments
    return [
        task.task_id,
        task.name,
        task.code_id,
        [item.task_id if isinstance(item, Ref) else item for item in arguments],
        _plain(task.shape),
        _plain(task.options),
        node.keep,
        str(node.state),
        node.result,
        None if node.error is None else _plain(node.error),
        task.distance,
    ]


def load_node(row: list[Any]) -> Node:
    """Return the node that :func:`dump_node` was given."""
    task_id, name, code_id, items, shape, options, keep, state, result, error, distance = row
    arguments: tuple[Argument, ...] = tuple(Ref(item) if isinstance(item, int) else item for item in items)
    references = tuple(item.task_id for item in arguments if isinstance(item, Ref))
    plain = () if references else tuple(item for item in arguments if isinstance(item, bytes))
    task = Task(task_id, name, code_id, plain, _load_shape(shape), TaskOptions(*options), distance)
    node = Node(task, arguments if references else None, keep, references)
    node.state = TaskState(state)
    node.is_queued = False
    node.result = result
    node.error = None if error is None else TaskError(*error)
    return node


def _plain(value: Any) -> Any:
    if isinstance(value, Struct | Requirement):
        value = [getattr(value, name) for name in type(value).__match_args__]
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _load_shape(row: list[Any]) -> Shape:
    requirements, *rest = _tuples(row)
    return Shape(tuple(Requirement(*fields) for fields in requirements), *rest)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value
