"""What a task is, whatever its number: the transition, its code, its arguments and its files.

Two tasks with one key have the same result, so a result of before may stand for one that is to come.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.compute.code import ProgramCall
from gspc_trio.core.code import Program, placeholders
from gspc_trio.core.code_identity import IDENTITY_BYTES
from gspc_trio.core.file_sets import all_of_target
from gspc_trio.core.ids import TaskId
from gspc_trio.core.staging import PLAN_MARK, FilePlan, split_plan
from gspc_trio.core.task import Task
from gspc_trio.protocol.values import is_reference

Key: TypeAlias = tuple[str, bytes, tuple[tuple[str, bytes], ...]]
"""Name of the transition; digest of code, arguments and files that the task read; files that it has stored on
the host of its job, with the digests of their content."""

NO_KEY: Key = ("", b"", ())
"""That of a task of which it is not known what it was: no task is like it."""

Mark: TypeAlias = tuple[int, ...]
"""Changes when a file does."""


class Noted(Struct, frozen=True):
    """What is known of a task when it is handed out.

    Attributes:
        name: of its transition.
        digest: of its code and its arguments.
        plan: of its files; None: it has none.
        marks: of the files on the host of its job that it will read, in the order of ``files_read``.
    """

    name: str
    digest: bytes
    plan: FilePlan | None = None
    marks: tuple[Mark | None, ...] = ()


def files_read(plan: FilePlan) -> list[str]:
    """Return names, patterns and directories of the files on the host of the job that a task reads."""
    sources = [source for _, source in plan.fetch]
    sources += [source for one in plan.gather for source in one.sources]
    return [source for source in sources if isinstance(source, str)]


def files_stored(plan: FilePlan) -> list[str]:
    """Return names, patterns and directories of the files on the host of the job that a task stores."""
    names = [target for _, target in plan.store if isinstance(target, str)]
    return names + [all_of_target(one.target) for one in plan.scatter if isinstance(one.target, str)]


def files_named(program: Program | ProgramCall, *, in_folder: bool) -> list[str]:
    """Return the words of a program's line that may be files on the host of the job, scripts for instance.

    Args:
        program: with placeholders. What they stand for is an argument of the task.
        in_folder: whether it runs in a directory of its own. Relative names there are those of staged files.
    """
    names = [os.path.join(program.working_directory, word) for word in program.arguments]
    return [name for name in names if not placeholders(name) and (os.path.isabs(name) or not in_folder)]


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=IDENTITY_BYTES).digest()


class TaskKeys:
    """Notes what the tasks of a job are.

    Args:
        identities: of the code of its transitions; where there is none, or it is empty, tasks get no key.
        mark: returns the mark of a file on the host of the job, None if there is none.
    """

    def __init__(
        self, identities: Mapping[str, bytes], mark: Callable[[str], Mark | None] = lambda _: None
    ) -> None:
        self._begun = {
            name: _digest(repr((name, identity)).encode("utf-8", "surrogatepass"))
            for name, identity in identities.items()
            if identity
        }
        self._mark = mark
        self._noted: dict[TaskId, Noted] = {}

    def digest(self, name: str, arguments: Sequence[bytes]) -> bytes | None:
        """Return the digest of a task's code and arguments.

        None if the identity of its code is not known, or if an argument lies in a memory layer: there the
        data of another run may have its name.
        """
        begun = self._begun.get(name)
        if begun is None or any(map(is_reference, arguments)):
            return None
        if len(arguments) == 1:
            return _digest(begun + arguments[0])
        return _digest(b"".join((begun, repr(list(map(len, arguments))).encode(), *arguments)))

    def of(self, task: Task) -> Noted | None:
        """Return what a task is; None if its code, or what it reads and stores, has no identity."""
        digest = self.digest(task.name, task.arguments)
        if digest is None:
            return None
        if not task.arguments or task.arguments[-1][:2] != PLAN_MARK:
            return Noted(task.name, digest)
        plan = split_plan(task.arguments)[0]
        if plan is not None and plan.uris:
            return None
        return Noted(task.name, digest, plan, tuple(map(self._mark, files_read(plan))) if plan else ())

    def note(self, task: Task) -> None:
        """A task is handed out that has a plan of files."""
        noted = self.of(task)
        if noted is not None:
            self._noted[task.task_id] = noted

    def take(self, task_id: TaskId) -> Noted | None:
        """Return what was noted of a task, which has ended."""
        return self._noted.pop(task_id, None) if self._noted else None


def key_of(
    noted: Noted | None,
    is_same: Callable[[str, Mark | None], bool],
    content: Callable[[str], bytes | None],
) -> Key:
    """Return the key of a task that has finished.

    Args:
        noted: what it was when it was handed out.
        is_same: whether files are as they were when they had this mark.
        content: returns the digest of what files have now, None if one cannot be read.
    """
    if noted is None:
        return NO_KEY
    if noted.plan is None:
        return noted.name, noted.digest, ()
    read = with_files(noted, content)
    if read is None or not all(map(is_same, files_read(noted.plan), noted.marks)):
        return NO_KEY
    stored = []
    for path in files_stored(noted.plan):
        digest = content(path)
        if digest is None:
            return NO_KEY
        stored.append((path, digest))
    return noted.name, read, tuple(stored)


def with_files(noted: Noted, content: Callable[[str], bytes | None]) -> bytes | None:
    """Return the digest of a task with what the files have that it reads; None if one cannot be read."""
    if noted.plan is None:
        return noted.digest
    digest = blake2b(noted.digest, digest_size=IDENTITY_BYTES)
    for path in files_read(noted.plan):
        one = content(path)
        if one is None:
            return None
        digest.update(one)
    return digest.digest()
