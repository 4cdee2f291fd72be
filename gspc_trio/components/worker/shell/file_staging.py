"""Staging of a RIF: a task's data, its files in a directory of its own, and its ranges (WRK-2, ASP-1)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio
from msgspec.structs import replace

from gspc_trio.components.worker.events import AttemptKey
from gspc_trio.components.worker.messages import Submission
from gspc_trio.components.worker.shell.staging import StagedInput, StagingError
from gspc_trio.compute.channel import unpack
from gspc_trio.compute.folders import BadFile, Folder, Folders
from gspc_trio.core.ids import JobId, ResourceId
from gspc_trio.core.messages import Done
from gspc_trio.core.resources import Resource
from gspc_trio.core.staging import (
    CHUNK_BYTES,
    FETCHED_AHEAD,
    STORED_AHEAD,
    BadFileName,
    DropFile,
    FilePiece,
    FilePlan,
    ReadFile,
    StageLimits,
    WriteFile,
    parts_of,
    split_plan,
)
from gspc_trio.core.task import Outcome
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, RemoteError
from gspc_trio.nursery.scopes.scope import leaves
from gspc_trio.protocol.values import BadValue, decode_reference, dumps, is_plain, is_reference, loads

if TYPE_CHECKING:  # a job without a memory layer needs nothing of that
    from gspc_trio.components.worker.shell.iml_staging import DataStaging

VALUE_BYTES_MAX = 32 << 20
"""A file that becomes a value of a job without memory layer has no more bytes: it travels in a message."""


AnswerT = TypeVar("AnswerT")


class _Work:
    """A task that has a plan, from its stage-in until it is reported."""

    def __init__(self, plan: FilePlan, values: tuple[bytes, ...], restored: list[str]) -> None:
        self.plan = plan
        self.values = values
        self.restored = restored
        self.folder: Folder | None = None


class JobStaging:
    """Stages the tasks of one job.

    Args:
        data: for jobs that have a memory layer.
        folders: of this host.
        limits: of the job.
        server: returns the connection to its job server, None if there is none now.
    """

    def __init__(
        self,
        data: DataStaging | None,
        folders: Folders,
        limits: StageLimits,
        server: Callable[[], Peer | None],
    ) -> None:
        self._data = data
        self._folders = folders
        self._limits = limits
        self._server = server
        self._works: dict[tuple[ResourceId, AttemptKey], _Work] = {}
        self._transfer = 0

    async def stage_in(self, resource: Resource, job: JobId, submission: Submission) -> StagedInput | None:
        """Have the task's data on this host, and its files in a directory of its own.

        Raises:
            StagingError: a file is not to be had, too large, or its name leads out of the directory.
        """
        del job
        try:
            plan, values, behind = split_plan(submission.arguments)
            restored = list(unpack(behind[0][2:])) if behind else []
        except (ValueError, TypeError) as error:
            raise StagingError(str(error)) from None
        moved: tuple[tuple[str, int, float], ...] = ()
        if self._data is not None:
            moved = await self._data.fetch(_needed(plan, values))
        else:
            await trio.lowlevel.checkpoint()
        if plan is None:
            return StagedInput(moved=moved) if moved else None
        staged = _Work(plan, values, restored)
        directory = ""
        if plan.has_files:
            staged.folder = await self._make_folder(staged)
            directory = staged.folder.path
        key = (resource.resource_id, (submission.task_id, submission.attempt))
        self._works[key] = staged
        told = replace(submission, arguments=(*values[: plan.arguments], *behind), directory=directory)
        return StagedInput(told, partial(self._release, key), moved)

    async def stage_out(
        self, resource: Resource, job: JobId, submission: Submission, outcome: Outcome
    ) -> Outcome | None:
        """Take the task's files, put its ranges, and have copies made of its data.

        Raises:
            StagingError: a file is not there, is no plain file or too large; or something cannot be stored.
        """
        del job
        staged = self._works.get((resource.resource_id, (submission.task_id, submission.attempt)))
        changed = None
        if staged is not None and (staged.plan.store or staged.plan.ranges):
            changed = outcome = replace(outcome, values=await self._store(staged, outcome.values))
        if self._data is not None:
            await self._data.copy(outcome)
        await trio.lowlevel.checkpoint()
        return changed

    # In

    async def _make_folder(self, staged: _Work) -> Folder:
        plan, limits = staged.plan, self._limits
        for files, what in ((plan.fetch, "fetch"), (plan.store, "store")):
            if len(files) > limits.files_max:
                raise StagingError(f"it has {len(files)} files to {what}; at most {limits.files_max} may be")
        names = {name: _parts(name) for name, _ in (*plan.fetch, *plan.store)}
        folder = await trio.to_thread.run_sync(self._folders.make)
        try:
            left = limits.file_bytes_max
            for name, source in plan.fetch:
                target = folder.create(names[name])
                try:
                    left -= await self._fill(target, source, staged.values, left)
                except (BadValue, OSError) as error:
                    why = error.strerror if isinstance(error, OSError) else None
                    raise StagingError(f"its file {name}: {why or error}") from None
                finally:
                    os.close(target)
        except BaseException:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(folder.remove)
            raise
        return folder

    async def _fill(self, target: int, source: str | int, values: tuple[bytes, ...], bytes_max: int) -> int:
        """Write a file; return its size."""
        if isinstance(source, str):
            return await self._fetch_file(target, source, bytes_max)
        value = values[source]
        if is_reference(value):
            if self._data is None:
                raise StagingError("its data lies in a memory layer, of which the job is no part")
            return await self._data.read_into(decode_reference(value), target, bytes_max)
        content = _bytes_of(value)
        _check_size(len(content), bytes_max)
        await trio.to_thread.run_sync(_write, target, content)
        return len(content)

    async def _fetch_file(self, target: int, path: str, bytes_max: int) -> int:
        """Write what is in a file of the job's host; that must not change meanwhile."""
        _parts(path)
        first = await self._ask(ReadFile(path, 0, CHUNK_BYTES), FilePiece)
        size_bytes = first.size_bytes
        _check_size(size_bytes, bytes_max)
        await trio.to_thread.run_sync(_write, target, first.data, 0)
        offsets = iter(range(len(first.data), size_bytes, CHUNK_BYTES))
        if len(first.data) < min(CHUNK_BYTES, size_bytes):
            raise StagingError(f"the file {path} has become shorter while it was fetched")

        async def fetch_pieces() -> None:
            for offset in offsets:
                piece = await self._ask(ReadFile(path, offset, CHUNK_BYTES), FilePiece)
                if piece.mark != first.mark:
                    raise StagingError(f"the file {path} has changed while it was fetched")
                if len(piece.data) != min(CHUNK_BYTES, size_bytes - offset):
                    raise StagingError(f"the file {path} has become shorter while it was fetched")
                await trio.to_thread.run_sync(_write, target, piece.data, offset)

        await _side_by_side(FETCHED_AHEAD, fetch_pieces)
        return size_bytes

    # Out

    async def _store(
        self, staged: _Work, values: tuple[tuple[bytes, ...], ...]
    ) -> tuple[tuple[bytes, ...], ...]:
        """Store what the task has made; return the values of all its outputs."""
        outputs = list(values)
        restored = staged.restored[sum(is_reference(one) for tokens in values for one in tokens) :]
        opened: list[tuple[str, str | int, int, int]] = []
        try:
            left = self._limits.file_bytes_max
            for name, target in staged.plan.store:
                assert staged.folder is not None
                try:
                    source, size_bytes = staged.folder.open(_parts(name))
                except FileNotFoundError:
                    raise StagingError(f"it has not made the file {name}") from None
                opened.append((name, target, source, size_bytes))
                _check_size(size_bytes, left)
                left -= size_bytes
            for _, target, source, size_bytes in sorted(
                (one for one in opened if isinstance(one[1], int)), key=lambda one: int(one[1])
            ):
                if target != len(outputs):
                    raise StagingError("its outputs do not go with the plan of its files")
                outputs.append((await self._value_of(source, size_bytes, restored),))
            for output, argument in staged.plan.ranges:
                await self._put(outputs, output, staged.values[argument])
            for _, target, source, size_bytes in opened:
                if isinstance(target, str):
                    await self._send_file(source, size_bytes, target)
        finally:
            for _, _, source, _ in opened:
                os.close(source)
        return tuple(outputs)

    async def _value_of(self, source: int, size_bytes: int, restored: list[str]) -> bytes:
        if self._data is not None and size_bytes >= self._data.bytes_min:
            return await self._data.store(source, size_bytes, restored.pop(0) if restored else "")
        _check_size(size_bytes, VALUE_BYTES_MAX)
        return dumps(await trio.to_thread.run_sync(_read, source, 0, size_bytes))

    async def _put(self, outputs: list[tuple[bytes, ...]], output: int, where: bytes) -> None:
        """Put the value of an output into a range, which becomes the value."""
        if self._data is None or not is_reference(where):
            raise StagingError("its range is no range of a memory layer that the job has")
        if not 0 <= output < len(outputs) or len(outputs[output]) != 1:
            raise StagingError("its outputs do not go with its ranges")
        value = outputs[output][0]
        try:
            content = decode_reference(value) if is_reference(value) else _bytes_of(value)
            await self._data.put(decode_reference(where), content)
        except BadValue as error:
            hint = "return bytes, or memoryview(...) of an array"
            raise StagingError(f"what is to be put into a range: {error}; {hint}") from None
        outputs[output] = (where,)

    async def _send_file(self, source: int, size_bytes: int, path: str) -> None:
        """Write a file of the job's host; it is seen when it is whole."""
        _parts(path)
        self._transfer += 1
        transfer, reading = self._transfer, trio.Lock()
        offsets = iter(range(0, max(1, size_bytes), CHUNK_BYTES))

        async def send_pieces() -> None:
            while True:
                async with reading:
                    offset = next(offsets, None)
                    if offset is None:
                        return
                    count = min(CHUNK_BYTES, size_bytes - offset)
                    data = await trio.to_thread.run_sync(_read, source, offset, count)
                # From here to the call nothing waits: the pieces go out in their order.
                is_last = offset + count >= size_bytes
                await self._ask(WriteFile(transfer, path, offset, is_last, data), Done)

        try:
            await _side_by_side(STORED_AHEAD, send_pieces)
        except BaseException:
            server = self._server()
            if server is not None:
                server.post(DropFile(transfer))
            raise

    async def _ask(self, message: ReadFile | WriteFile, answer: type[AnswerT]) -> AnswerT:
        server = self._server()
        try:
            if server is None:
                raise PeerGone("not there")
            found: object = await server.call(message)
        except PeerGone as gone:
            raise StagingError(f"its job server is gone: {gone}", returned=True) from None
        except RemoteError as refused:
            raise StagingError(refused.message) from None
        if not isinstance(found, answer):
            raise StagingError(f"its job server answered {type(found).__name__}, not {answer.__name__}")
        return found

    async def _release(self, key: tuple[ResourceId, AttemptKey]) -> None:
        staged = self._works.pop(key, None)
        if staged is not None and staged.folder is not None:
            with trio.CancelScope(shield=True), suppress(OSError):
                await trio.to_thread.run_sync(staged.folder.remove)


async def _side_by_side(number: int, move_pieces: Callable[[], Awaitable[None]]) -> None:
    """Have the pieces of a file moved, so many at a time; of several errors one is raised."""
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(number):
                nursery.start_soon(move_pieces)
    except BaseExceptionGroup as group:
        errors = list(leaves(group))  # when a connection goes all fail alike
        raise next((error for error in errors if not isinstance(error, trio.Cancelled)), errors[0]) from None


def _needed(plan: FilePlan | None, values: tuple[bytes, ...]) -> list[bytes]:
    """Return the values whose data has to come: not of what is only overwritten."""
    if plan is None:
        return list(values)
    files = {source for _, source in plan.fetch}
    return [value for index, value in enumerate(values) if index < plan.arguments or index in files]


def _parts(name: str) -> tuple[str, ...]:
    try:
        return parts_of(name)
    except BadFileName as error:
        raise StagingError(str(error)) from None


def _bytes_of(value: bytes) -> bytes:
    """Return the bytes that an encoded value stands for; a text is UTF-8.

    Raises:
        BadValue: it is neither bytes nor text.
    """
    found = loads(value) if is_plain(value) else None  # nothing is unpickled here
    if isinstance(found, str):
        return found.encode("utf-8", "surrogateescape")
    if not isinstance(found, bytes):
        raise BadValue("it is neither bytes nor text nor a range of data")
    return found


def _check_size(size_bytes: int, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        raise StagingError(f"{size_bytes} bytes in a file are more than it may have ({bytes_max})")


def _write(target: int, data: bytes, offset: int = 0) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(target, view, offset)
        view, offset = view[count:], offset + count


def _read(source: int, offset: int, size_bytes: int) -> bytes:
    data = os.pread(source, size_bytes, offset)
    if len(data) < size_bytes:
        raise BadFile("a file has become shorter while it was staged")
    return data
