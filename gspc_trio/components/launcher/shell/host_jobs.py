"""Jobs of a study that are processes of this host: started, watched and ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import trio

from gspc_trio.components.launcher.adapter import DirectStart, HostProcess
from gspc_trio.components.launcher.events import CommandExited
from gspc_trio.components.launcher.shell.study_folder import StudyFolder
from gspc_trio.components.launcher.study_job import StudyJob
from gspc_trio.components.provision.batch import BatchJob, BatchState, Command
from gspc_trio.components.provision.providers.local import end_session

UNKNOWN_STATUS = 255
"""Stands for an exit status that nobody has told."""


KILLED_STATUS = 128
"""A shell says this and the number of the signal for a command that one has ended."""


class _HostJob:
    """A job some of whose processes have not ended.

    Attributes:
        job: as it was asked for.
        job_id: the id of its first process.
        running: process id -> what the process is.
        untold: number of processes of whose end nothing was told.
        status: the highest exit status of those that have ended.
    """

    def __init__(self, job: StudyJob, job_id: str) -> None:
        self.job = job
        self.job_id = job_id
        self.running: dict[int, HostProcess] = {}
        self.untold = 0
        self.status = 0


class HostJobs:
    """The jobs of one study that are processes of this host.

    Args:
        nursery: in which they are watched.
        folder: of the study.
        tell: takes how they end.
        run: runs a command, to its end or for so long.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        folder: StudyFolder,
        tell: Callable[[CommandExited], None],
        run: Callable[[Command], Awaitable[object]],
    ) -> None:
        self._nursery = nursery
        self._folder = folder
        self._tell = tell
        self._run = run
        self._jobs: dict[str, _HostJob] = {}

    async def start(self, job: StudyJob, start: DirectStart) -> str:
        """Start a job; return its id.

        Raises:
            OSError: it cannot be started; nothing of it is left.
        """
        started: list[trio.Process] = []
        with trio.CancelScope(shield=True):  # what has begun is known
            try:
                for one in start.processes:
                    started.append(await _start(job, one))
            except OSError:
                for process in started:
                    _kill_group(process.pid)
                    await process.wait()
                raise
        kept = self._jobs[job.name] = _HostJob(job, str(started[0].pid))
        for process, one in zip(started, start.processes, strict=True):
            self._begin(kept, process.pid, one, process.wait)
        return kept.job_id

    def adopt(self, job: StudyJob, start: DirectStart, job_id: str) -> None:
        """Take over a job that a launcher before this one has started, or was about to start.

        Args:
            job: as it was asked for.
            start: how it was started.
            job_id: its id, "" if that is not known.
        """
        leaders = session_leaders()
        found = [leaders.get(one.command, 0) for one in start.processes]
        kept = self._jobs[job.name] = _HostJob(job, job_id or str(found[0] or job.name))
        for pid, one in zip(found, start.processes, strict=True):
            self._begin(kept, pid, one, partial(_wait_for_other, pid))

    def _begin(
        self, kept: _HostJob, pid: int, one: HostProcess, wait: Callable[[], Awaitable[int | None]]
    ) -> None:
        if pid:
            kept.running[pid] = one
        kept.untold += 1
        self._nursery.start_soon(self._watch, kept, pid, one, wait)

    async def _watch(
        self, kept: _HostJob, pid: int, one: HostProcess, wait: Callable[[], Awaitable[int | None]]
    ) -> None:
        """Wait for the end of a process, and tell of it."""
        status = await wait()
        if kept.running.pop(pid, None) is not None:
            _kill_group(pid)  # what it has left of itself
        if one.end_rest and (status is None or not 0 <= status < KILLED_STATUS):
            with suppress(OSError):
                await self._run(one.end_rest)
        uid, processes = kept.job.uid, kept.job.processes
        has_several = len(processes) > 1  # each client has a status of its own
        mine = [each for each in processes if not one.client_ids or each.client_id in one.client_ids]
        told: dict[str, int] = {}
        if has_several or status is None:
            told = await trio.to_thread.run_sync(self._folder.statuses, mine)
        if status is None:
            status = max(told.get(each.path, UNKNOWN_STATUS) for each in mine)
        status = status if status >= 0 else 128 - status
        kept.status = max(kept.status, status)
        if has_several:
            for each in mine:
                self._tell(CommandExited(uid, told.get(each.path, status), each.client_id))
        kept.untold -= 1
        if not kept.untold:
            del self._jobs[kept.job.name]
            self._tell(CommandExited(uid, kept.status, is_gone=True))

    def jobs(self) -> list[StudyJob]:
        """Return the jobs that have not ended."""
        return [one.job for one in self._jobs.values()]

    def told(self) -> tuple[BatchJob, ...]:
        """Return the jobs that have not ended, as a batch system would tell of them."""
        return tuple(BatchJob(one.job_id, name, BatchState.RUNNING) for name, one in self._jobs.items())

    def ends(self, name: str, client_id: int | None = None) -> list[Command]:
        """Return the commands that end a job, or one client of it: each with all that it has started.

        Args:
            name: of the job.
            client_id: of the client; None: all of the job.
        """
        kept = self._jobs.get(name)
        running = {} if kept is None else kept.running
        return [
            end_session(pid)
            for pid, one in running.items()
            if client_id is None or one.client_ids == (client_id,)
        ]

    def kill(self) -> None:
        """Kill all that is left, at once."""
        for kept in self._jobs.values():
            for pid in kept.running:
                _kill_group(pid)


def session_leaders() -> dict[Command, int]:
    """Return the programs of this host that lead a session, with their arguments -> process id."""
    found: dict[Command, int] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            if os.getsid(pid) == pid:
                words = (entry / "cmdline").read_bytes().split(b"\0")[:-1]
                found[tuple(os.fsdecode(word) for word in words)] = pid
    return found


async def _wait_for_other(pid: int) -> None:
    """Wait for the end of a process that another one has started; how it ends nobody knows here."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid) if pid else None
        if descriptor is not None:
            try:
                await trio.lowlevel.wait_readable(descriptor)
            finally:
                os.close(descriptor)


async def _start(job: StudyJob, one: HostProcess) -> trio.Process:
    """Start a process of a job, as the leader of a session.

    Raises:
        OSError: it cannot be started.
    """
    with ExitStack() as files:
        output, errors = [
            files.enter_context(await trio.to_thread.run_sync(partial(open, path, "ab")))
            for path in (job.output, job.errors)
        ]
        return await trio.lowlevel.open_process(
            one.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=job.work_dir,
            start_new_session=True,
        )


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
