"""Staging of a RIF: a task's data, its files in a directory of its own, and its ranges (WRK-2, ASP-1)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from gspc_trio.components.worker.events import AttemptKey
from gspc_trio.components.worker.messages import Submission
from gspc_trio.components.worker.shell.file_transfer import TaskFiles, checked_parts
from gspc_trio.components.worker.shell.files_in import FilesIn, bytes_of
from gspc_trio.components.worker.shell.files_out import FilesOut
from gspc_trio.components.worker.shell.staging import StagedInput, StagingError
from gspc_trio.compute.channel import unpack
from gspc_trio.compute.folders import Folder, Folders, remove_tree
from gspc_trio.core.ids import JobId, ResourceId
from gspc_trio.core.resources import Resource
from gspc_trio.core.staging import FilePlan, StageLimits, split_plan, wrapper_order
from gspc_trio.core.task import Outcome
from gspc_trio.protocol.values import BadValue, decode_reference, is_reference

if TYPE_CHECKING:  # a job without a memory layer needs nothing of that
    from gspc_trio.components.worker.shell.iml_staging import DataStaging


_OF_HOST = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOMEM),
    *(errno.EMFILE, errno.ENFILE, errno.ENOTCONN, errno.ETIMEDOUT),
}
"""Errors of a host, or of a file system that it sees: no file that a task names is to blame."""


class _Work:
    """A task that has a plan, from its stage-in until it is reported."""

    def __init__(self, plan: FilePlan, values: tuple[bytes, ...], restored: list[str], attempt: str) -> None:
        self.plan = plan
        self.values = values
        self.restored = restored
        self.attempt = attempt
        self.is_over = False
        self.left = ""
        self.folder: Folder | None = None
        self.given: frozenset[str] = frozenset()


class JobStaging:
    """Stages the tasks of one job.

    Args:
        data: for jobs that have a memory layer.
        folders: of this host.
        limits: of the job.
        files: moves its files.
        home: directory of its files, if the processes that run its tasks see it and stage themselves; or "".
        failed: told why, when files could not be staged because of this host, or of its site.
        with_uris: returns what moves files, and those that URIs name, too.
    """

    def __init__(
        self,
        data: DataStaging | None,
        folders: Folders,
        limits: StageLimits,
        files: TaskFiles,
        home: str = "",
        failed: Callable[[str], None] = lambda _: None,
        with_uris: Callable[[TaskFiles], TaskFiles] = lambda files: files,
    ) -> None:
        self._home = home
        self._failed = failed
        self._data = data
        self._folders = folders
        self._limits = limits
        self._files = files
        self._with_uris = with_uris
        self._works: dict[tuple[ResourceId, AttemptKey], _Work] = {}

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
        staged = _Work(plan, values, restored, f"{submission.task_id}-{submission.attempt}")
        directory = ""
        if plan.has_files and self._home:
            directory = await self._wrapped(staged)
        if plan.has_files and not directory:
            with self._told_if_failed():
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
        if staged is not None and (staged.plan.store or staged.plan.scatter or staged.plan.ranges):
            with self._told_if_failed():
                values = await self._store(staged, outcome.values)
            changed = outcome = replace(outcome, values=values)
        if self._data is not None:
            await self._data.copy(outcome)
        await trio.lowlevel.checkpoint()
        return changed

    @contextmanager
    def _told_if_failed(self) -> Iterator[None]:
        """Have it told if the files of a task cannot be staged, and not because of the task."""
        try:
            yield
        except (StagingError, OSError) as error:
            if error.of_host if isinstance(error, StagingError) else error.errno in _OF_HOST:
                self._failed(str(error))
            raise

    async def _wrapped(self, staged: _Work) -> str:
        """Return what the process that runs a task is told of its files, "" if it cannot stage them all."""
        limits = self._limits
        staged.left = await trio.to_thread.run_sync(self._folders.name)
        said = wrapper_order(staged.plan, self._home, staged.left, limits.files_max, limits.file_bytes_max)
        return said or ""

    def _files_of(self, plan: FilePlan) -> TaskFiles:
        return self._with_uris(self._files) if plan.uris else self._files

    async def _make_folder(self, staged: _Work) -> Folder:
        plan, limits = staged.plan, self._limits
        for files, what in ((plan.fetch, "fetch"), (plan.store, "store")):
            if len(files) > limits.files_max:
                raise StagingError(f"it has {len(files)} files to {what}; at most {limits.files_max} may be")
            for name, _ in files:
                checked_parts(name)
        await self._files.prepare()
        folder = await trio.to_thread.run_sync(self._folders.make)
        try:
            files_in = FilesIn(plan, staged.values, limits, self._files_of(plan), self._data)
            staged.given = await files_in.put(folder)
        except BaseException:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(folder.remove)
            raise
        return folder

    async def _store(
        self, staged: _Work, values: tuple[tuple[bytes, ...], ...]
    ) -> tuple[tuple[bytes, ...], ...]:
        """Store what the task has made; return the values of all its outputs."""
        outputs = list(values)
        files_out = None
        if staged.folder is not None:
            folder, given = staged.folder, staged.given
            files = self._files_of(staged.plan)
            files_out = FilesOut(staged.plan, folder, given, self._limits, files, self._data)
            restored = staged.restored[sum(map(len, values)) :]
            outputs += await files_out.values(len(outputs), restored)
        for output, argument in staged.plan.ranges:
            await self._put(outputs, output, staged.values[argument])
        if files_out is not None:
            await self._files.ended(staged.attempt)
            staged.is_over = True
            await files_out.send()
        return tuple(outputs)

    async def _put(self, outputs: list[tuple[bytes, ...]], output: int, where: bytes) -> None:
        """Put the value of an output into a range, which becomes the value."""
        if self._data is None or not is_reference(where):
            raise StagingError("its range is no range of a memory layer that the job has")
        if not 0 <= output < len(outputs) or len(outputs[output]) != 1:
            raise StagingError("its outputs do not go with its ranges")
        value = outputs[output][0]
        try:
            content = decode_reference(value) if is_reference(value) else bytes_of(value)
            await self._data.put(decode_reference(where), content)
        except BadValue as error:
            hint = "return bytes, or memoryview(...) of an array"
            raise StagingError(f"what is to be put into a range: {error}; {hint}") from None
        outputs[output] = (where,)

    async def _release(self, key: tuple[ResourceId, AttemptKey]) -> None:
        staged = self._works.pop(key, None)
        if staged is not None and staged.left:  # its process may have been killed
            with trio.CancelScope(shield=True), suppress(OSError):
                await trio.to_thread.run_sync(remove_tree, staged.left)
        if staged is not None and staged.folder is not None:
            with trio.CancelScope(shield=True), suppress(OSError, StagingError):
                if not staged.is_over and (staged.plan.store or staged.plan.scatter):
                    await self._files.ended(staged.attempt, "it has not come to its end")
                await trio.to_thread.run_sync(staged.folder.remove)


def _needed(plan: FilePlan | None, values: tuple[bytes, ...]) -> list[bytes]:
    """Return the values whose data has to come: not of what is only overwritten."""
    if plan is None:
        return list(values)
    files = plan.file_arguments
    return [value for index, value in enumerate(values) if index < plan.arguments or index in files]
