"""Errors that futures of tasks bring."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from traceback import format_exception_only
from typing import Any

from gspc_trio.core.task import LastAttempt, TaskError
from gspc_trio.protocol.values import loads


class TaskFailed(RuntimeError):
    """The task failed without an exception (lost, refused, timed out), or with one that cannot come here.

    Attributes:
        kind: ``lost``, ``timeout``, ``refused``, ``cancelled`` ..., or the name of the exception's type.
        name: of its function.
        attempt: number of its last attempt, from 1; 0 if none began.
        host: where that was, or "".
        stdout, stderr: the last part of what it printed then.
        exit_status: of the process that died of it, minus the signal's number if one killed it; else None.
    """

    def __init__(
        self,
        message: str,
        kind: str = "",
        name: str = "",
        attempt: int = 0,
        host: str = "",
        stdout: str = "",
        stderr: str = "",
        exit_status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name
        self.attempt = attempt
        self.host = host
        self.stdout = stdout
        self.stderr = stderr
        self.exit_status = exit_status

    def __reduce__(self) -> tuple[type[TaskFailed], tuple[object, ...]]:
        told = (self.kind, self.name, self.attempt, self.host, self.stdout, self.stderr, self.exit_status)
        return type(self), (str(self), *told)


class ExecutorBroken(BrokenExecutor):
    """The run-time system has gone: tasks that had not ended never will, and none can be submitted."""


class RemoteTraceback(Exception):
    """Cause of an exception that was raised by a task: its traceback where it ran."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return "\n" + self.text


def exception_of(error: TaskError | None, last: LastAttempt | None = None) -> BaseException:
    """Return what to raise for a task's error: the task's own exception if it can be opened here.

    Args:
        error: of the task.
        last: its last attempt, of which a TaskFailed tells.
    """
    if error is None:
        return TaskFailed("the task failed without saying why")
    raised: Any = None
    if error.pickled:
        try:
            raised = loads(error.pickled)
        except BaseException as problem:  # SystemExit, too: this is the loop of all tasks
            why = "".join(format_exception_only(problem)).strip()
            message = f"{error.kind}: {error.message} (the exception itself cannot be opened here: {why})"
            raised = _failed(message, error, last)
    if isinstance(raised, MemoryError):  # the message says what limit there was
        if raised.args:
            raised.add_note(error.message)
        else:
            raised.args = (error.message,)
    is_raised = isinstance(raised, BaseException)
    exception: BaseException = raised if is_raised else _failed(f"{error.kind}: {error.message}", error, last)
    if error.traceback:
        exception.__cause__ = RemoteTraceback(error.traceback)
    return exception


def _failed(message: str, error: TaskError, last: LastAttempt | None) -> TaskFailed:
    last = last or LastAttempt()
    stdout, stderr = (printed.decode("utf-8", "replace") for printed in (last.stdout, last.stderr))
    told = (last.name, last.attempt, last.host, stdout, stderr, last.exit_status)
    return TaskFailed(message, error.kind, *told)
