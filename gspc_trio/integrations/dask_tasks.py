"""What tasks of Dask's graphs run in compute processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Node: TypeAlias = Callable[[Mapping[object, object]], object]
"""A task of a graph: called with key -> value of what it depends on."""


def run_node(node: Node, keys: Sequence[object], *values: object) -> object:
    """Run a task of a graph that has results of others within its arguments.

    Args:
        node: the task.
        keys: of what it depends on.
        values: of these.
    """
    return node(dict(zip(keys, values, strict=True)))
