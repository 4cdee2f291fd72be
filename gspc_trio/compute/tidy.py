"""Clean-up after a task: what it has changed in its process is undone before the next task begins.

The functions that change the working directory, the mask of new files, the environment and signal handlers
are replaced by ones that keep what was there before the first change. So a task that changes nothing costs
nothing. What the import of a module changes stays: the module is imported once, and tasks may rely on it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from gspc_trio.compute.system import VariableInPlace
from gspc_trio.core.imports import module_being_imported

Function = Callable[..., Any]


VARIABLES: dict[bytes, object] = vars(os.environ)["_data"]
"""What ``os.environ`` holds; to set a variable there takes five times as long, and is watched."""


class Changes:
    """What the present task has changed, with what was there before.

    Attributes:
        made: whether there is something to undo.
        in_fork: whether this process is a fork of the compute process.
        watched: whether changes are noticed.
        variables: how often the environment was changed so far.
        only_programs: whether no code of users has run in this process, only programs that it starts.
        behind: what is called next without a look at what was changed; emptied when something is.
    """

    def __init__(self) -> None:
        self.made: bool = False
        self.in_fork: bool = False
        self.watched: bool = False
        self.variables: int = 0
        self.only_programs: bool = False
        self.behind: list[object] = []
        self._folder: int | None = None
        self._mask: int | None = None
        self._variables: dict[bytes, bytes | None] = {}
        self._handlers: dict[int, Any] = {}
        self._variable: VariableInPlace | None = None
        self._put = -1  # what ``variables`` was after it was put there

    def watch_forks(self) -> None:
        """Notice from now on when this is a fork that a task has made."""
        os.register_at_fork(after_in_child=self._forked)

    def watch(self) -> None:
        """Notice from now on what tasks change; there is no way back."""
        _replace("posix", "chdir", self._before(self._keep_folder))
        _replace("posix", "fchdir", self._before(self._keep_folder))
        _replace("posix", "putenv", self._counted(self._before(self._keep_variable)))
        _replace("posix", "unsetenv", self._counted(self._before(self._keep_variable)))
        _replace("posix", "umask", self._after(self._keep_mask))
        _replace("_signal", "signal", self._after(self._keep_handler))
        self.watched = self.only_programs = True

    def keep(self) -> None:
        """Let what has changed stay."""
        self._take()

    def undo(self) -> None:
        """Put everything back."""
        folder, mask, variables, handlers = self._take()
        if folder is not None:
            with suppress(OSError):  # the task has closed its descriptor
                os.fchdir(folder)
        if mask is not None:
            os.umask(mask)
        for name, value in variables.items():
            if value is not None:
                os.environb[name] = value
            elif name in os.environb:
                del os.environb[name]
            else:  # set past os.environ
                os.unsetenv(name)
        for number, handler in handlers.items():
            if number == signal.SIGALRM:
                signal.alarm(0)
            signal.signal(number, handler)
        if folder is not None:
            with suppress(OSError):
                os.close(folder)
        self._take()  # what was put back is no change

    def put_variable(self, name: bytes, value: bytes) -> None:
        """Put a variable into the environment for the task that begins: no change of the task's.

        It is always the same variable, and its values are of one length.
        """
        variable = self._variable
        if variable is None:
            variable = self._variable = VariableInPlace(name, len(value))
        if self.variables != self._put or not self.watched:  # perhaps somebody has replaced it
            variable.attach()
        variable.text[variable.value] = value
        VARIABLES[name] = value
        self._put = self.variables = self.variables + 1

    def leave_fork(self) -> None:
        """End this process, a fork of the compute process that has returned from its task.

        The task is that of the compute process: only there may it go on, on channels that both have.
        """
        error = sys.exception()
        status = 0
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            status = 1
            with suppress(BaseException):
                sys.excepthook(type(error), error, error.__traceback__)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status & 0xFF)

    def _forked(self) -> None:
        self.in_fork = True
        self._note()

    def _note(self) -> None:
        self.made = True
        self.behind.clear()

    def _take(self) -> tuple[int | None, int | None, dict[bytes, bytes | None], dict[int, Any]]:
        taken = self._folder, self._mask, self._variables, self._handlers
        self.made = False
        self._folder = self._mask = None
        self._variables, self._handlers = {}, {}
        return taken

    def _counted(self, replace: Callable[[Function], Function]) -> Callable[[Function], Function]:
        """Have calls counted that change the environment, those of imports too."""

        def count(function: Function) -> Function:
            @wraps(function)
            def counted(*args: Any, **kwargs: Any) -> Any:
                self.variables += 1
                return function(*args, **kwargs)

            return replace(counted)

        return count

    def _before(self, keep: Function) -> Callable[[Function], Function]:
        """Have ``keep`` called with the first argument before the function."""

        def replace(function: Function) -> Function:
            @wraps(function)
            def watched(*args: Any, **kwargs: Any) -> Any:
                if module_being_imported() is None:
                    keep(*args[:1])
                    self._note()
                return function(*args, **kwargs)

            return watched

        return replace

    def _after(self, keep: Function) -> Callable[[Function], Function]:
        """Have ``keep`` called with the first argument and the result after the function."""

        def replace(function: Function) -> Function:
            @wraps(function)
            def watched(*args: Any, **kwargs: Any) -> Any:
                result = function(*args, **kwargs)
                if module_being_imported() is None:
                    keep(*args[:1], result)
                    self._note()
                return result

            return watched

        return replace

    def _keep_folder(self, _: object) -> None:
        if self._folder is None:
            with suppress(OSError):
                self._folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _keep_variable(self, name: str | bytes) -> None:
        key = os.fsencode(name)
        self._variables.setdefault(key, os.environb.get(key))

    def _keep_mask(self, _: object, before: int) -> None:
        if self._mask is None:
            self._mask = before

    def _keep_handler(self, number: int, before: Any) -> None:
        if before is not None:  # else it is none of Python's: nothing can put it back
            self._handlers.setdefault(int(number), before)


def _replace(home: str, name: str, replace: Callable[[Function], Function]) -> None:
    function = getattr(sys.modules[home], name)
    watched = replace(function)
    setattr(sys.modules[home], name, watched)
    if getattr(os, name, None) is function:
        setattr(os, name, watched)


changes: Changes = Changes()
"""Those of this process."""
