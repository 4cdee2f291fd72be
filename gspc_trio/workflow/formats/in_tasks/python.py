"""What tasks of foreign workflows and of pools run, in the processes that compute."""

from __future__ import annotations

import hashlib
import os
import sys
import time
import tokenize
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType

from msgspec import Struct

from gspc_trio.core.published import publish

BLOCK_BYTES = 1024 * 1024
_BURN_BYTES = 256 * 1024
"""hashlib lets go of the interpreter for so much at a time, so that threads run beside each other."""


class SyntheticFile(Struct, frozen=True):
    """A file that a task makes.

    Attributes:
        name: in the directory of the task.
        size_bytes: of the file, zeros.
    """

    name: str
    size_bytes: int


class RecordedWork(Struct, frozen=True):
    """Takes as long as the recorded task, and makes files of the recorded sizes.

    Attributes:
        seconds: how long.
        threads: that compute for so long; 0: it sleeps.
        files: that it makes.
    """

    seconds: float
    threads: int = 0
    files: tuple[SyntheticFile, ...] = ()

    def __call__(self) -> None:
        """Do it."""
        if self.threads:
            _burn(self.seconds, self.threads)
        elif self.seconds:
            time.sleep(self.seconds)
        for file in self.files:
            write_zeros(Path(file.name), file.size_bytes)


def write_zeros(path: Path, size_bytes: int) -> None:
    """Write a file of zeros, each of which takes room on the disk.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    block = bytes(min(size_bytes, BLOCK_BYTES))
    with path.open("wb") as file:
        left = size_bytes
        while left:
            left -= file.write(block[:left])


def _burn(seconds: float, threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for ended in [pool.submit(_compute, seconds) for _ in range(threads)]:
            ended.result()


def _compute(seconds: float) -> None:
    """Compute for so many seconds of a processor."""
    data = bytes(_BURN_BYTES)
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(data).digest()


THREADS_VARIABLE = "OMP_NUM_THREADS"


class NextToken(Struct, frozen=True):
    """Stands for the next token among the arguments of a task."""


class SourceCall(Struct, eq=False):
    """A function of a Python source file, whose text goes along when this is sent.

    Attributes:
        path: of the file.
        function: its name.
        text: of the file; None: it is read when this is sent.
    """

    path: str
    function: str
    text: str | None = None
    _found: Callable[..., object] | None = None

    def __call__(self, *arguments: object) -> object:
        """Call it.

        Raises:
            AttributeError: the file has no such function.
            Exception: whatever the file or the function raises.
        """
        if self._found is None:
            module = ModuleType(Path(self.path).stem)
            module.__file__ = self.path
            before = sys.modules.get(module.__name__)
            sys.modules[module.__name__] = module  # while it runs: some look for themselves
            try:
                exec(self._compiled(self._read()), module.__dict__)
            finally:
                if before is None:
                    del sys.modules[module.__name__]
                else:
                    sys.modules[module.__name__] = before
            self._found = getattr(module, self.function)
        return self._found(*arguments)

    def __reduce__(self) -> tuple[type[SourceCall], tuple[str, str, str]]:
        text = self._read()
        compiled = self._compiled(text)
        if self.function not in compiled.co_names and ("*",) not in compiled.co_consts:
            raise ValueError("there is no such function")
        return SourceCall, (self.path, self.function, text)

    def __repr__(self) -> str:
        return f"{self.function} of {self.path}"

    def _compiled(self, text: str) -> CodeType:
        return compile(text, self.path, "exec", dont_inherit=True)

    def _read(self) -> str:
        if self.text is not None:
            return self.text
        try:
            with tokenize.open(self.path) as file:
                return file.read()
        except OSError as error:
            raise ValueError(f"it cannot be read: {error.strerror or error}") from error


class PoolTask(Struct, frozen=True):
    """Calls a function with tokens and values, and publishes what it returns.

    Attributes:
        function: what to call.
        arguments: of the function, in order; :class:`NextToken` for a token.
        threads: so many it may use; ``OMP_NUM_THREADS`` says so.
        publishes: name under which its result is published, or "".
        copies: of the published result, each on a host of its own.
        stripes: of the published result, each on a host of its own.
    """

    function: Callable[..., object]
    arguments: tuple[object, ...] = ()
    threads: int = 1
    publishes: str = ""
    copies: int = 1
    stripes: int = 1

    def __repr__(self) -> str:
        return repr(self.function)

    def __call__(self, *tokens: object) -> object:
        """Call it."""
        left = iter(tokens)
        arguments = [
            next(left) if isinstance(argument, NextToken) else argument for argument in self.arguments
        ]
        with _threads(self.threads):
            result = self.function(*arguments)
        if self.publishes:
            publish(self.publishes, result, copies=self.copies, stripes=self.stripes)
        return result


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = os.environ.get(THREADS_VARIABLE)
    os.environ[THREADS_VARIABLE] = str(number)
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS_VARIABLE]
        else:
            os.environ[THREADS_VARIABLE] = before
