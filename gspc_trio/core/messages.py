"""What every component knows of messages: calls and their answers, and a line that a task has printed."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from gspc_trio.core.ids import TaskId

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Question(Struct, Generic[AnswerT_co], frozen=True):
    """A call; its type names that of the answer."""


class Done(Struct, frozen=True):
    """The call was carried out."""


class OutputLine(Struct, frozen=True):
    """One line that a task has printed.

    Attributes:
        task_id, name: of the task.
        stderr: it was printed to standard error, not to standard output.
        text: without the end of line.
    """

    task_id: TaskId
    name: str
    stderr: bool
    text: str
