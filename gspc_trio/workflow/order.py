"""Results of one transition that are put on their places in the order in which its tasks began."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from gspc_trio.core.ids import TaskId
from gspc_trio.workflow.search import Binding

Encoded: TypeAlias = tuple[tuple[bytes, ...], ...]
"""For each output of a task's code, the encoded tokens."""


class Order:
    """The tasks of one transition that have begun, and results that wait for those of earlier ones.

    A task that has failed or was cancelled keeps its turn, for it may be made ready again.

    Args:
        produce: puts the result of a task on the places behind its transition.
    """

    __slots__ = ("_held", "_produce", "_turns")

    def __init__(self, produce: Callable[[TaskId, Binding, Encoded], None]) -> None:
        self._produce = produce
        self._turns: deque[TaskId] = deque()
        self._held: dict[TaskId, tuple[Binding, Encoded]] = {}

    @property
    def held(self) -> Mapping[TaskId, tuple[Binding, Encoded]]:
        """Results that wait: task -> the tokens it took, and its result."""
        return self._held

    def began(self, task_id: TaskId) -> None:
        """A task has begun: its turn comes behind those of all before it."""
        self._turns.append(task_id)

    def ended(self, task_id: TaskId, binding: Binding, values: Encoded) -> None:
        """A task has finished: put its result where it belongs when it has its turn, and those behind it."""
        turns, held = self._turns, self._held
        if turns[0] != task_id:
            held[task_id] = (binding, values)
            return
        turns.popleft()
        self._produce(task_id, binding, values)
        while turns and turns[0] in held:
            following = turns.popleft()
            self._produce(following, *held.pop(following))

    def load(self, unended: Iterable[TaskId], held: Mapping[TaskId, tuple[Binding, Encoded]]) -> None:
        """Go on with these tasks, and with these results that wait."""
        self._held = dict(held)
        self._turns = deque(sorted({*unended, *held}))

    def check(self, unended: Collection[TaskId]) -> None:
        """Assert that these tasks and the results that wait have their turns, the first one no result."""
        assert list(self._turns) == sorted({*unended, *self._held}), "a task has no turn, or two"
        assert not self._turns or self._turns[0] not in self._held, "a result waits in vain"
