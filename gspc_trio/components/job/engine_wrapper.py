"""An engine around another one: what it does not do in its own way, the other one does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from gspc_trio.components.job.machine import Engine
from gspc_trio.core.ids import TaskId
from gspc_trio.core.net import NetStatus


class EngineWrapper:
    """Base of engines that note, check or add something to what another one does.

    Args:
        wrapped: the other one.
    """

    def __init__(self, wrapped: Engine) -> None:
        self._wrapped = wrapped
        self.restore: Callable[[TaskId], None] = wrapped.restore
        self.explain_stuck: Callable[[], list[str]] = wrapped.explain_stuck
        self.describe: Callable[[], NetStatus] = wrapped.describe
        self.resolve: Callable[[Mapping[str, object]], None] = wrapped.resolve
        self.named: Set[str] = wrapped.named

    @property
    def has_more(self) -> bool:
        """Whether to ask for tasks once more."""
        return self._wrapped.has_more

    @property
    def is_stopped(self) -> bool:
        """Whether a termination transition has ended the workflow."""
        return self._wrapped.is_stopped
