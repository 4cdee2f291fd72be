"""Dask's scheduler ``get``: its graphs go to the task graph of an executor in one go."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, groupby
from queue import SimpleQueue
from types import NoneType
from typing import Any, TypeAlias

from dask._task_spec import (
    Alias,
    DataNode,
    GraphNode,
    Task,
    TaskRef,
    convert_legacy_graph,
)
from dask.callbacks import local_callbacks, unpack_callbacks
from dask.local import finish_task, nested_get, start_state_from_dask
from dask.order import order
from dask.utils import funcname

from gspc_trio.core.imports import collector_paused
from gspc_trio.executor import Executor, ExecutorBroken, TaskFailed
from gspc_trio.executor.calls import CallsTogether
from gspc_trio.executor.futures import SomeTaskFuture, own_value, wait_finished
from gspc_trio.integrations.dask_tasks import run_node
from gspc_trio.integrations.own_executor import open_own_executor

Key: TypeAlias = Any
"""Of a task: a text, a number, or a tuple of them."""

Graph: TypeAlias = dict[Key, Any]
"""Key -> task, alias or data."""

_END = object()

_PLAIN = frozenset({int, float, bool, complex, NoneType, str, bytes})
"""Types of values that name no other task: to ask takes less time than to look into each value."""

WORKER = "gspc"
"""What callbacks are told of where a task has run."""


class Get:
    """A scheduler for Dask.

    Args:
        executor: computes; None for one that is opened when it is first needed.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor

    def on(self, executor: Executor) -> Get:
        """Return this scheduler on an executor of yours."""
        return Get(executor)

    def __call__(
        self,
        dsk: Any,
        keys: Any,
        *,
        optimize_graph: bool = True,
        callbacks: Any = None,
        **_others: object,
    ) -> Any:
        """Compute a graph and return the values of keys, in tuples as the keys are in lists.

        Args:
            dsk: a graph of Dask, or a collection.
            keys: a key, or lists of keys.
            optimize_graph: make one task of each chain of tasks.
            callbacks: Dask's, those that are active by default.

        Raises:
            KeyError: there is no such key.
            BadValue: a function or value cannot be sent to another process.
            BrokenProcessPool: a worker, or the run-time system, has gone.
            Exception: what a task raised.
        """
        with collector_paused():  # a graph is no garbage
            graph = convert_legacy_graph(dsk if isinstance(dsk, Mapping) else dsk.__dask_graph__())
            wanted = dict.fromkeys(_flat(keys))
            graph = needed(graph, wanted)
            are_independent = is_flat(graph)
            if optimize_graph and not are_independent:
                graph = fused(graph, wanted)
                are_independent = is_flat(graph)
        executor = self._executor or _own.executor()
        with local_callbacks(callbacks) as active, _told_as_dask_does():
            if active:
                values = _compute_and_tell(executor, graph, wanted, are_independent, active)
            else:
                values = _compute(executor, graph, wanted, are_independent)
        return nested_get(keys, values)


def _flat(keys: Any) -> Iterator[Key]:
    if not isinstance(keys, list):
        yield keys
    elif not any(issubclass(kind, list) for kind in set(map(type, keys))):
        yield from keys
    else:
        for one in keys:
            yield from _flat(one)


def needed(graph: Graph, wanted: Iterable[Key]) -> Graph:
    """Return the part of a graph that the wanted keys need.

    Raises:
        KeyError: there is no such key.
    """
    found: Graph = {key: graph[key] for key in wanted}  # flat graphs are submitted in this order
    pending = [key for node in found.values() for key in node.dependencies]
    while pending:
        key = pending.pop()
        if key not in found:
            found[key] = graph[key]
            pending.extend(graph[key].dependencies)
    return found


def is_flat(graph: Graph) -> bool:
    """Return whether no task needs another one."""
    return not any(node.dependencies for node in graph.values())


def fused(graph: Graph, wanted: Container[Key]) -> Graph:
    """Return a graph in which each chain of tasks is one task, which has the key of the last.

    A chain is made of tasks that need one other, which nothing else needs and nobody wants.
    """
    users = Counter(chain.from_iterable(node.dependencies for node in graph.values()))
    after: dict[Key, Key] = {}
    for key, node in graph.items():
        if isinstance(node, Task) and len(node.dependencies) == 1:
            (needed_one,) = node.dependencies
            if users[needed_one] == 1 and needed_one not in wanted and isinstance(graph[needed_one], Task):
                after[needed_one] = key
    if not after:
        return graph
    result: Graph = {}
    followers = set(after.values())
    for first in graph.keys() - followers:
        links = [graph[first]]
        key = first
        while (key := after.get(key, _END)) is not _END:
            links.append(graph[key])
        last = links[-1].key
        result[last] = Task.fuse(*links, key=last) if len(links) > 1 else links[0]
    return result


class Submission:
    """The tasks of a graph on their way to the task graph, and their futures.

    A future of which nothing but this knows is not kept: so its result goes when the last task has it.

    Args:
        executor: computes.
        graph: what is computed.
        wanted: keys of values that are to come back.
        are_independent: whether no task needs another one.
    """

    def __init__(
        self, executor: Executor, graph: Graph, wanted: Iterable[Key], are_independent: bool
    ) -> None:
        self._executor = executor
        self._graph = graph
        self._futures: dict[Key, SomeTaskFuture] = {}
        self._named: tuple[Callable[..., object] | None, str] = (None, "")
        self.kept: dict[Key, SomeTaskFuture] = {}
        self.ranks: dict[Key, int] = {} if are_independent else order(graph)
        with executor.calls_together(are_independent=are_independent) as self._calls:
            if are_independent:
                self._submit_rows(self._calls, graph)
            else:
                for key in sorted(graph, key=self.ranks.__getitem__):
                    self._futures[key] = self._future(self._calls, graph[key])
            self.kept = {key: self._futures[key] for key in wanted}

    def _submit_rows(self, calls: CallsTogether, graph: Graph) -> None:
        """Submit tasks none of which needs another one: those of one function with plain values at once."""
        for is_plain, items in groupby(graph.items(), _plain_function):
            group = list(items)
            if not is_plain:
                for key, node in group:
                    self._futures[key] = self._future(calls, node)
                continue
            function = group[0][1].func
            rows = [node.args for _, node in group]
            futures = calls.submit_rows(funcname(function), function, rows)
            self._futures.update(zip([key for key, _ in group], futures, strict=True))

    def _future(self, calls: CallsTogether, node: Any) -> SomeTaskFuture:
        is_task = type(node) is Task
        if isinstance(node, Alias):
            return self._futures[node.target]
        if isinstance(node, DataNode):
            return self._executor.share(node.value)
        name = self._name_of(node.func) if is_task else type(node).__name__
        if is_task and not any(map(_has_others_within, (*node.args, *node.kwargs.values()))):
            args = map(self._value, node.args)
            kwargs = {word: self._value(value) for word, value in node.kwargs.items()}
            return calls.submit(name, node.func, *args, **kwargs)
        keys = tuple(node.dependencies)
        return calls.submit(name, run_node, node, keys, *map(self._futures.__getitem__, keys))

    def _name_of(self, function: Callable[..., object]) -> str:
        if self._named[0] is not function:
            self._named = function, funcname(function)
        return self._named[1]

    def _value(self, value: Any) -> object:
        return self._futures[value.key] if isinstance(value, TaskRef) else value

    def rank(self, key: Key) -> int:
        """Return the place of a task in Dask's order."""
        return self.ranks.get(key, 0)

    def take_futures(self) -> dict[Key, SomeTaskFuture]:
        """Return all futures; from now on only those of wanted keys are kept here."""
        futures, self._futures = self._futures, {}
        return futures

    def cancel(self) -> None:
        """End what has not ended."""
        self._calls.cancel()

    def values(self) -> dict[Key, object]:
        """Return the values of the wanted keys, which have finished."""
        return {key: own_value(future) for key, future in self.kept.items()}


def _plain_function(item: tuple[Key, GraphNode]) -> int:
    """Return which function a task calls with values that name no other task; 0 if it is no such task."""
    node = item[1]
    if type(node) is Task and not node.kwargs and _PLAIN.issuperset(map(type, node.args)):
        return id(node.func)
    return 0


def _has_others_within(value: object) -> bool:
    return isinstance(value, GraphNode)


def _compute(
    executor: Executor, graph: Graph, wanted: Mapping[Key, None], are_independent: bool
) -> dict[Key, object]:
    submission = Submission(executor, graph, wanted, are_independent)
    submission.take_futures()
    try:
        wait_finished(list(submission.kept.values()))
        return submission.values()
    except BaseException:
        submission.cancel()
        raise


def _compute_and_tell(
    executor: Executor,
    graph: Graph,
    wanted: Mapping[Key, None],
    are_independent: bool,
    callbacks: Sequence[Any],
) -> dict[Key, object]:
    """Compute, and call callbacks as Dask's own schedulers do: in this thread."""
    begun, state, failed = [], dict[str, Any](), True
    try:
        for callback in callbacks:
            if callback[0]:
                callback[0](graph)
            begun.append(callback)
        submission = Submission(executor, graph, wanted, are_independent)
        try:
            rank = submission.rank
            state |= start_state_from_dask(graph, keys=list(wanted), sortkey=rank, cache={})
            for callback in callbacks:
                if callback[1]:
                    callback[1](graph, state)
            _follow(submission, graph, state, set(wanted), callbacks)
            values = submission.values()
        except BaseException:
            submission.cancel()
            raise
        failed = False
        return values
    finally:
        for callback in begun:
            if callback[4]:
                callback[4](graph, state, failed)


def _follow(
    submission: Submission, graph: Graph, state: dict[str, Any], wanted: set[Key], callbacks: Sequence[Any]
) -> None:
    """Tell callbacks of tasks that can run, and of those that have ended."""
    _, _, before, after, _ = unpack_callbacks(callbacks)
    futures, ended = submission.take_futures(), SimpleQueue[Key]()
    rank = submission.rank
    while state["waiting"] or state["ready"] or state["running"]:
        while state["ready"]:
            key = state["ready"].pop()
            state["running"].add(key)
            for call in before:
                call(key, graph, state)
            futures[key].add_done_callback(_putting(ended, key))
        key = ended.get()
        future = futures.pop(key)
        wait_finished([future])
        value = future.result() if after else None
        state["cache"][key] = value
        finish_task(graph, key, state, wanted, rank)
        for call in after:
            call(key, value, graph, state, WORKER)


def _putting(ended: SimpleQueue[Key], key: Key) -> Callable[[Future[Any]], None]:
    return lambda _: ended.put(key)


@contextmanager
def _told_as_dask_does() -> Iterator[None]:
    """Raise what Dask's scheduler of processes raises when a worker, or the run-time system, has gone."""
    try:
        yield
    except (ExecutorBroken, TaskFailed) as error:
        raise BrokenProcessPool(str(error)) from error


class _OwnExecutor:
    """The executor of those who give none: opened at first use, closed with the interpreter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._executor: Executor | None = None

    def executor(self) -> Executor:
        """Return the executor of this process."""
        with self._lock:
            executor = self._executor
            if executor is None or self._process != os.getpid() or executor._broken:
                self._executor = executor = open_own_executor()
                self._process = os.getpid()
            return executor


_own = _OwnExecutor()
"""Dask knows a scheduler as a function, without anything around it: what its calls share is here."""

get: Get = Get()
"""A scheduler for ``dask.config.set(scheduler=get)``, and for ``compute(scheduler=get)``."""
