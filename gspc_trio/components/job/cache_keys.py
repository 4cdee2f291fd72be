"""By what a cache finds the result of a task: its code, its arguments, and files that it is known to read.

Whatever has no identity (``core.code_identity``) has no key: such a task is run.
"""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from msgspec import Struct

from gspc_trio.components.job.cache import Key, NotCacheable, StoredFiles
from gspc_trio.components.job.task_key import files_named, files_read
from gspc_trio.compute.code import (
    ImportedFunction,
    PickledFunction,
    ProgramCall,
    SourceFunction,
    decode_code,
)
from gspc_trio.core.code_identity import IDENTITY_BYTES, source_identity, value_identity
from gspc_trio.core.staging import FilePlan, split_plan
from gspc_trio.core.task import Task, TaskVariants
from gspc_trio.core.uri import mask_uri
from gspc_trio.protocol.values import is_plain, is_reference, loads


class KnownFiles(Protocol):
    """Tells files on the host of the job apart."""

    def identity(self, name: str) -> bytes:
        """Return the identity of what a name stands for; NotCacheable if it has none."""
        ...

    def plain_identity(self, name: str) -> bytes | None:
        """Return that of a plain file, None if the name stands for none; NotCacheable as above."""
        ...


class CacheKey(Struct, frozen=True):
    """By what the result of a task is found.

    Attributes:
        key: of the entry.
        plan: of the task's files, or None.
        read: (name, identity) of the files that were read for the key.
    """

    key: Key
    plan: FilePlan | None
    read: StoredFiles = ()


class _KnownCode(Struct, frozen=True):
    """The identity of an entry of the code table, and the files that are constants in it."""

    identity: bytes
    read: StoredFiles
    is_program: bool


class CacheKeys:
    """Makes the keys of a job's tasks. It opens their code and arguments, as compute processes do.

    Args:
        code: returns an entry of the code table, encoded.
        files: on the host of the job.
        initializer: code that compute processes run first.
    """

    def __init__(self, code: Callable[[int], bytes], files: KnownFiles, initializer: bytes = b"") -> None:
        self._code = code
        self._files = files
        self._initializer = initializer
        self._codes: dict[tuple[int, bool], _KnownCode | str] = {}
        self._read: dict[str, bytes] = {}

    def key_of(self, task: Task) -> CacheKey:
        """Return the key of a task.

        Raises:
            NotCacheable: it has none.
        """
        plan, values, behind = split_plan(task.arguments)
        has_files = plan is not None and plan.has_files
        if plan is not None and plan.uris:
            raise NotCacheable(f"what is at {mask_uri(plan.uris[0])} may change, and nobody would notice")
        known = self._code_of(task.code_id, has_files)
        if task.variants is not None:
            known = self._variants_of(task.variants, has_files)
        if known.is_program and not (has_files or task.options.cache):
            raise NotCacheable(
                "what a program reads and writes is not known unless it is stated: stage_in, stage_out, "
                "or cache=True if that is nothing"
            )
        self._read = dict(known.read)
        digest = blake2b(known.identity, digest_size=IDENTITY_BYTES)
        try:
            for argument in values:
                digest.update(self._identity_of(argument))
        except NotCacheable:
            raise
        except Exception as error:  # methods of the user's classes
            raise NotCacheable(f"an argument: {error}") from error
        if plan is not None:
            digest.update(plan.encoded())
            digest.update(value_identity(behind))
            for source in files_read(plan):
                digest.update(self._file(source))
        return CacheKey(digest.digest(), plan, tuple(self._read.items()))

    def _file(self, name: str) -> bytes:
        found = self._read[name] = self._files.identity(name)
        return found

    def _named(self, name: str) -> bytes | None:
        path = os.path.abspath(name)
        found = self._files.plain_identity(path)
        if found is not None:
            self._read[path] = found
        return found

    def _path(self, name: str) -> bytes:
        return self._file(os.path.abspath(name))  # tasks begin in the working directory of the job

    def _identity_of(self, argument: bytes) -> bytes:
        if is_reference(argument):
            raise NotCacheable("an argument lies in a memory layer")
        if is_plain(argument):
            return blake2b(argument, digest_size=IDENTITY_BYTES, person=b"plain").digest()
        return value_identity(loads(argument), self._path)

    def _code_of(self, code_id: int, in_folder: bool) -> _KnownCode:
        known = self._codes.get((code_id, in_folder))
        if known is None:
            self._read = {}
            try:
                first = self._open(self._initializer, False) if self._initializer else b""
                data = self._code(code_id)
                is_program = isinstance(decode_code(data), ProgramCall)
                known = _KnownCode(first + self._open(data, in_folder), tuple(self._read.items()), is_program)
            except NotCacheable as error:
                known = str(error)
            except Exception as error:  # unpickling may raise what it likes
                known = f"its code: {error}"
            self._codes[code_id, in_folder] = known
        if isinstance(known, str):
            raise NotCacheable(known)
        return known

    def _variants_of(self, variants: TaskVariants, in_folder: bool) -> _KnownCode:
        """Return what is known of all variants together: nobody says before which of them runs."""
        found = [self._code_of(way.code_id, in_folder) for way in variants.ways]
        leading = b"".join(self._identity_of(item) for way in variants.ways for item in way.leading)
        return _KnownCode(
            b"".join(one.identity for one in found) + leading,
            tuple(item for one in found for item in one.read),
            any(one.is_program for one in found),
        )

    def _open(self, data: bytes, in_folder: bool) -> bytes:
        code = decode_code(data)
        what: object
        if isinstance(code, ImportedFunction):
            what = importlib.import_module(code.module)
            for part in code.qualname.split("."):
                what = getattr(what, part)
        elif isinstance(code, PickledFunction):
            what = pickle.loads(code.data)
        elif isinstance(code, SourceFunction):
            what = source_identity(code.text, code.path, code.function)
        else:
            assert isinstance(code, ProgramCall)
            scripts = tuple(map(self._named, files_named(code, in_folder=in_folder)))
            what = (code.arguments, code.environment, code.working_directory, code.check, scripts)
        head = type(code).__name__, code.parameters, code.outputs
        return value_identity(head) + value_identity(what, self._path)
