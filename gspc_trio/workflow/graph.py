"""A graph of tasks that grows while it runs: what the executor submits, with the engine's verbs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.core.ids import TaskId
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.net import NetStatus
from gspc_trio.core.task import (
    CORE,
    DEFAULT_OPTIONS,
    TO_COME,
    FailedThrough,
    Shape,
    Task,
    TaskError,
    TaskOptions,
    TaskState,
    TaskVariants,
)
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.call_options import load_shape, load_variants, plain_needs
from gspc_trio.workflow.tokens import Plain

FORMAT = 1
"""Version of the dumps that are written and read."""

_READY, _SUBMITTED, _FINISHED = TaskState.READY, TaskState.SUBMITTED, TaskState.FINISHED
_FAILED, _CANCELLED = TaskState.FAILED, TaskState.CANCELLED

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
        self.task: Task = task
        self.arguments: tuple[Argument, ...] | None = arguments
        if len(references) > 1 and len(set(references)) < len(references):
            references = tuple(dict.fromkeys(references))
        self.references: tuple[TaskId, ...] | Sequence[TaskId] = references
        self.keep: bool = keep
        self.state: TaskState = TaskState.READY
        self.missing: int = 0
        self.is_queued: bool = True
        self.users: dict[TaskId, Node] | None = None
        self.result: bytes | None = None
        self.error: TaskError | None = None


class TaskGraph:
    """Tasks that refer to one another's results.

    A task that has ended goes when no other needs its result, unless it was added with ``keep``: then it
    stays until it is forgotten. A task that refers to one that failed or was cancelled fails, and so do
    those that refer to it.
    """

    has_more = False

    @property
    def dependents(self) -> TaskGraph:
        """Itself: it knows which tasks take the results of others."""
        return self

    def __init__(self) -> None:
        self._nodes: dict[TaskId, Node] = {}
        self._ready: deque[TaskId] = deque()
        self._counts = dict.fromkeys((_READY, _SUBMITTED, _FINISHED, _FAILED, _CANCELLED), 0)
        self.last_task_id: TaskId = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, task_id: TaskId) -> bool:
        return task_id in self._nodes

    def add(
        self,
        name: str,
        code_id: int,
        arguments: Sequence[Argument] = (),
        shape: Shape = CORE,
        options: TaskOptions = DEFAULT_OPTIONS,
        *,
        keep: bool = False,
        variants: TaskVariants | None = None,
        items: int = 0,
    ) -> TaskId:
        """Add a task and return its id; it is ready when the tasks that it refers to have finished.

        Args:
            name: for people.
            code_id: of what it runs.
            arguments: encoded values, and Ref for results of other tasks.
            shape: what it needs to run.
            options: what it states about itself.
            keep: remember it, whatever becomes of it, until :meth:`forget`.
            variants: ways to run it, if there are several; code and shape are those of the first.
            items: it computes so many calls that are told of each; they have the numbers behind its own.

        Raises:
            WorkflowError: it refers to a task that has failed, was never there or has gone.
        """
        task_id = self.last_task_id + 1
        references = [item.task_id for item in arguments if type(item) is Ref]
        if references:
            if len(references) > 1:
                references = list(dict.fromkeys(references))
            others = self._referred(name, references)
            # It uses results up: it counts as nearer to the end than those that make them.
            distance = min([other.task.distance for other in others]) - 1
            task = Task(task_id, name, code_id, (), shape, options, distance, variants)
            self._add_dependent(Node(task, tuple(arguments), keep, references), others)
        else:
            task = Task(task_id, name, code_id, tuple(arguments), shape, options, 0, variants, items)  # type: ignore[arg-type]
            self._nodes[task_id] = Node(task, None, keep)
            self._ready.append(task_id)
        self._counts[_READY] += 1
        self.last_task_id = task_id + items
        return task_id

    def _referred(self, name: str, references: Iterable[TaskId]) -> list[Node]:
        nodes, others = self._nodes, []
        for reference in references:
            other = nodes.get(reference)
            if other is None or other.state is _FAILED or other.state is _CANCELLED:
                state = "is not there or has gone" if other is None else f"was {other.state}"
                raise WorkflowError(f"task {name!r} refers to task {reference}, which {state}")
            others.append(other)
        return others

    def _add_dependent(self, node: Node, others: Iterable[Node]) -> None:
        task_id, nodes = node.task.task_id, self._nodes
        missing = 0
        for other in others:
            if other.users is None:
                other.users = {task_id: node}
            else:
                other.users[task_id] = node
            if other.state is not _FINISHED:
                missing += 1
        node.missing = missing
        if missing:
            node.is_queued = False
        else:
            self._ready.append(task_id)
        nodes[task_id] = node

    # The scheduler's side

    def next(self) -> TaskId | None:
        """Return the id of a task that is ready, each once, or None."""
        ready, nodes = self._ready, self._nodes
        while ready:
            task_id = ready.popleft()
            node = nodes.get(task_id)
            if node is not None:
                node.is_queued = False
                if node.state is _READY:
                    return task_id
        return None

    def follower(self, task_id: TaskId) -> Task | None:
        """Return the only task that refers to an extracted one, if that is all it waits for."""
        node = self._nodes.get(task_id)
        if node is None or not node.users or len(node.users) > 1 or node.state is not _SUBMITTED:
            return None
        (user,) = node.users.values()
        return user.task if user.missing == 1 and user.state is _READY else None

    def extract(self, task_id: TaskId, ahead: int = 0) -> Task:
        """Return a task that lacks at most ``ahead`` results (TO_COME); it counts as extracted from now on.

        Raises:
            IllegalEvent: the task is not ready.
        """
        node = self._nodes.get(task_id)
        if node is None or node.state is not _READY or node.missing > ahead:
            raise self._illegal(task_id, "extracted")
        self._change(node, _SUBMITTED)
        task = node.task
        if node.arguments is None:
            return task
        arguments: list[bytes] = []
        for argument in node.arguments:
            result = argument if isinstance(argument, bytes) else self._nodes[argument.task_id].result
            arguments.append(TO_COME if result is None else result)
        return replace(task, arguments=tuple(arguments))

    def inject(self, task_id: TaskId, values: tuple[tuple[bytes, ...], ...]) -> None:
        """Take the result of an extracted task: one output with one value.

        Raises:
            IllegalEvent: the task is not extracted, or that is not one value.
        """
        node = self._nodes.get(task_id)
        if node is None or node.state is not _SUBMITTED:
            raise self._illegal(task_id, "injected")
        assert not node.missing, "what has a result had its arguments"
        if len(values) != 1 or len(values[0]) != 1:
            raise IllegalEvent(f"task {task_id} ({node.task.name}) must have one value as its result")
        self._change(node, _FINISHED)
        node.result = values[0][0]
        if node.users:
            for user_id, user in node.users.items():
                user.missing -= 1
                if not user.missing and user.state is _READY:
                    self._queue(user_id, user)
        elif not node.keep:
            del self._nodes[task_id]
        if node.references:
            self._release(node)  # which have all finished

    def fail(self, task_id: TaskId, error: TaskError) -> tuple[FailedThrough, ...]:
        """The extracted task has failed; return the tasks that fail through it, nearest first.

        Raises:
            IllegalEvent: the task is not extracted.
        """
        node = self._nodes.get(task_id)
        if node is None or node.state is not _SUBMITTED:
            raise self._illegal(task_id, "failed")
        return self._end(node, _FAILED, error)

    def cancelled(self, task_id: TaskId) -> tuple[FailedThrough, ...]:
        """The task was cancelled, extracted or not; return the tasks that fail through it, nearest first.

        Raises:
            IllegalEvent: the task has ended or is unknown.
        """
        node = self._nodes.get(task_id)
        if node is None or node.state in ENDED:
            raise self._illegal(task_id, "cancelled")
        return self._end(node, _CANCELLED, TaskError("cancelled", "it was cancelled"))

    def restore(self, task_id: TaskId) -> None:
        """Make a task ready again that was extracted, or failed or was cancelled and is kept.

        Tasks that failed through it stay so.

        Raises:
            IllegalEvent: the task is ready, finished or not there, or another that it refers to has not
            finished.
        """
        node = self._nodes.get(task_id)
        if node is None or node.state is _READY or node.state is _FINISHED:
            raise self._illegal(task_id, "restored")
        if node.missing:
            raise IllegalEvent(f"task {task_id} cannot be restored: one that it refers to has not finished")
        self._change(node, _READY)
        node.error = None
        self._queue(task_id, node)

    # The owner's side

    def forget(self, task_id: TaskId) -> None:
        """Its owner no longer needs to know what becomes of this task; unknown ids are ignored.

        A task that has not ended still runs.
        """
        node = self._nodes.get(task_id)
        if node is not None:
            node.keep = False
            self._drop_unneeded([task_id])

    def state(self, task_id: TaskId) -> TaskState:
        """Return the state of a task that is there; READY also while it waits for others.

        Raises:
            KeyError: it is not there, or no longer.
        """
        return self._nodes[task_id].state

    def references(self, task_id: TaskId) -> Sequence[TaskId]:
        """Return the tasks that a task refers to, each once; nothing of one that has ended.

        Raises:
            KeyError: it is not there, or no longer.
        """
        return self._nodes[task_id].references

    def added(self, after: TaskId) -> list[tuple[Task, Sequence[TaskId], tuple[Argument, ...]]]:
        """Return tasks added after one that have not ended, with those they refer to and what they take."""
        nodes = (self._nodes.get(task_id) for task_id in range(after + 1, self.last_task_id + 1))
        return [(it.task, it.references, it.arguments or ()) for it in nodes if it and it.state not in ENDED]

    def result(self, task_id: TaskId) -> bytes | None:
        """Return the encoded result of a task that is there, None if it has none.

        Raises:
            KeyError: it is not there, or no longer.
        """
        return self._nodes[task_id].result

    def error(self, task_id: TaskId) -> TaskError | None:
        """Return why a task that is there did not finish, None if it may still.

        Raises:
            KeyError: it is not there, or no longer.
        """
        return self._nodes[task_id].error

    def counts(self) -> dict[TaskState, int]:
        """Return the number of tasks in each state, also of those that have gone; SUBMITTED are extracted."""
        return dict(self._counts)

    @property
    def is_stopped(self) -> bool:
        """Never: a graph goes on for as long as there are tasks."""
        return False

    def explain_stuck(self) -> list[str]:
        """Return nothing: a task that refers to others either gets their results or fails."""
        return []

    def describe(self) -> NetStatus:
        """Return nothing: a graph has no net."""
        return NetStatus()

    @property
    def failures(self) -> list[str]:
        """What has failed and is no task: nothing."""
        return []

    @property
    def discarded(self) -> list[TaskId]:
        """Tasks that were dropped: none ever is."""
        return []

    @property
    def named(self) -> Set[str]:
        """No names: values of a graph are made before its tasks are added."""
        return frozenset()

    def resolve(self, found: Mapping[str, object]) -> None:
        """Nothing stands for published data here."""

    def take_over(self, task_id: TaskId) -> None:
        """Return None: a graph waits for no results of an earlier job server."""

    # Inside

    def _change(self, node: Node, state: TaskState) -> None:
        assert state in TRANSITIONS[node.state], f"task {node.task.task_id} from {node.state} to {state}"
        self._counts[node.state] -= 1
        self._counts[state] += 1
        node.state = state

    def _queue(self, task_id: TaskId, node: Node) -> None:
        if not node.is_queued:
            node.is_queued = True
            self._ready.append(task_id)

    def _end(self, first: Node, state: TaskState, error: TaskError) -> tuple[FailedThrough, ...]:
        """End a task without a result, and those that cannot have one without it."""
        self._change(first, state)
        first.error = error
        origin = f"task {first.task.task_id} ({first.task.name})"
        ended = "was cancelled" if state is _CANCELLED else f"failed: {error.message}"
        failed = []
        nodes = [first]
        for node in nodes:
            for user_id, user in (node.users or {}).items():
                if user.state not in ENDED:
                    self._change(user, _FAILED)
                    message = f"it depends on {origin}, which {ended}"
                    user.error = TaskError(error.kind, message, error.traceback, error.pickled)
                    failed.append(FailedThrough(user_id, user.task.name, user.error))
                    nodes.append(user)
        self._drop_unneeded([node.task.task_id for node in reversed(nodes)])
        return tuple(failed)

    def _drop_unneeded(self, task_ids: list[TaskId]) -> None:
        """Drop those of the tasks that have ended and that nobody needs, and what only they needed."""
        for task_id in task_ids:
            node = self._nodes.get(task_id)
            if node is not None and node.state in ENDED and not node.keep and not node.users:
                del self._nodes[task_id]
                if node.state is not _FINISHED:
                    task_ids += self._release(node)

    def _release(self, node: Node) -> list[TaskId]:
        """The node no longer needs what it refers to: drop what has finished and nobody needs any more.

        Returns:
            others that nobody needs any more.
        """
        task_id, nodes = node.task.task_id, self._nodes
        others = []
        for reference in node.references:
            other = nodes[reference]
            users = other.users
            assert users is not None
            del users[task_id]
            if not (users or other.keep):
                if other.state is _FINISHED:  # it has released what it needed
                    del nodes[reference]
                else:
                    others.append(reference)
        return others

    def _illegal(self, task_id: TaskId, what: str) -> IllegalEvent:
        node = self._nodes.get(task_id)
        if node is None:
            state = "not there or no longer"
        elif node.state is _READY and node.missing:
            state = "waiting for others"
        else:
            state = str(node.state)
        return IllegalEvent(f"task {task_id} cannot be {what}: it is {state}")

    # Dump, load and check

    def dump(self) -> dict[str, Plain]:
        """Return the whole state as plain data, at any time (WE-1)."""
        handed_out = [
            task_id
            for task_id, node in self._nodes.items()
            if not node.missing
            and (node.state is _SUBMITTED or (node.state is _READY and not node.is_queued))
        ]
        return {
            "format": FORMAT,
            "nodes": [dump_node(node) for node in self._nodes.values()],
            "ready": handed_out + [task_id for task_id in self._ready if task_id in self._nodes],
            "counts": {str(state): number for state, number in self._counts.items()},
            "last_task_id": self.last_task_id,
        }

    @classmethod
    def load(cls, state: Mapping[str, Plain]) -> TaskGraph:
        """Return a graph that goes on where :meth:`dump` was called (WE-2).

        Tasks that were extracted are ready again.

        Raises:
            WorkflowError: this is no dump.
        """
        if not isinstance(state, Mapping) or state.get("format") != FORMAT or "nodes" not in state:
            raise WorkflowError(f"this is no dump of a task graph (format {FORMAT})")
        graph = cls()
        graph.last_task_id = state["last_task_id"]
        graph._counts = {TaskState(name): number for name, number in state["counts"].items()}
        nodes = graph._nodes = {node.task.task_id: node for node in map(load_node, state["nodes"])}
        for task_id, node in nodes.items():
            if node.state is _FINISHED:
                continue
            if node.state is _SUBMITTED:
                graph._change(node, _READY)
            for reference in node.references:
                other = nodes[reference]
                other.users = other.users or {}
                other.users[task_id] = node
                node.missing += other.state is not _FINISHED
        for task_id in state["ready"]:
            graph._queue(task_id, nodes[task_id])
        return graph

    def check(self) -> None:
        """Assert that states, counts, queue and references agree."""
        assert sum(self._counts.values()) == self.last_task_id, "a task was lost"
        queued = {task_id for task_id in self._ready if task_id in self._nodes}
        for task_id, node in self._nodes.items():
            users, state = node.users or {}, node.state
            assert state not in ENDED or node.keep or users, f"task {task_id} is not needed"
            assert (node.result is not None) == (state is _FINISHED), f"task {task_id}: state and result"
            assert (node.error is not None) == (state in (_FAILED, _CANCELLED)), f"task {task_id}: error"
            assert node.is_queued == (task_id in queued), f"task {task_id}: mark and queue differ"
            if state is not _FINISHED:
                others = {reference: self._nodes[reference] for reference in node.references}
                waits = [reference for reference, other in others.items() if other.state is not _FINISHED]
                assert node.missing == len(waits), f"task {task_id} waits for {waits}, not {node.missing}"
                assert all(task_id in (other.users or {}) for other in others.values()), f"task {task_id}"
        for state in (_READY, _SUBMITTED):
            there = sum(node.state is state for node in self._nodes.values())
            assert self._counts[state] == there, f"{state}: {self._counts[state]} counted, {there} there"


def dump_node(node: Node) -> list[Plain]:
    """Return a node as plain data; users, waiting and queue follow from the nodes together."""
    task = node.task
    arguments = task.arguments if node.arguments is None else node.arguments
    return [
        task.task_id,
        task.name,
        task.code_id,
        [item.task_id if isinstance(item, Ref) else item for item in arguments],
        plain_needs(task.shape),
        plain_needs(task.options),
        node.keep,
        str(node.state),
        node.result,
        None if node.error is None else plain_needs(node.error),
        task.distance,
        *(() if task.variants is None else [plain_needs(task.variants)]),
    ]


def load_node(row: list[Plain]) -> Node:
    """Return the node that :func:`dump_node` was given."""
    task_id, name, code_id, items, shape, options, keep, state, result, error, distance, *more = row
    arguments: tuple[Argument, ...] = tuple(Ref(item) if isinstance(item, int) else item for item in items)
    references = tuple(item.task_id for item in arguments if isinstance(item, Ref))
    plain = () if references else tuple(item for item in arguments if isinstance(item, bytes))
    ways = load_variants(more[0]) if more else None
    task = Task(task_id, name, code_id, plain, load_shape(shape), TaskOptions(*options), distance, ways)
    node = Node(task, arguments if references else None, keep, references)
    node.state = TaskState(state)
    node.is_queued = False
    node.result = result
    node.error = None if error is None else TaskError(*error)
    return node
