"""Ties between tasks of a chain: one that was sent ahead takes the result of the one before it.

Such a task waits at the worker, directly behind the other one. When that has finished, it is a task like
others. When that does not finish there, it comes back and has not begun: it waits with the scheduler until
the other one has finished somewhere, or fails through it.
"""

from __future__ import annotations

from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.job.scheduler.state import TaskEntry
from gspc_trio.core.task import TO_COME


def waits(entry: TaskEntry) -> bool:
    """Whether a task takes a result that is not there yet."""
    return entry.tie is not None and entry.tie.before is not None


def untie(entry: TaskEntry) -> None:
    """A task has ended, or is to: the one before it brings it nothing any more."""
    tie = entry.tie
    if tie is not None and tie.before is not None:
        before = tie.before.tie
        assert before is not None, "tied in one direction"
        if before.behind is entry:
            before.behind = None


def fill(entry: TaskEntry) -> None:
    """Give a task the result that it takes among its arguments: it is sent as others are from now on."""
    tie = entry.tie
    if tie is not None and tie.made:
        made, tie.made = tie.made, b""
        arguments = tuple([made if argument == TO_COME else argument for argument in entry.task.arguments])
        entry.task = replace(entry.task, arguments=arguments)


def has_failed_too(done: TaskDone, through: list[TaskDone]) -> bool:
    """Whether a task that was sent ahead, and has ended, has just failed through another one as well.

    It is taken off the list of these then: it ends once.
    """
    for also in through:
        if also.task_id == done.task_id:
            through.remove(also)
            return True
    return False
