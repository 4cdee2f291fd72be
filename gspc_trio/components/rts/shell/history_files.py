"""Files of jobs that are over, one each, beside the state of a run-time system: the next one knows them."""

from __future__ import annotations

import logging
from pathlib import Path

import trio
from msgspec.structs import replace

from gspc_trio.components.rts.messages import EndedJob
from gspc_trio.components.rts.shell.service import RtsService
from gspc_trio.core.ids import JobId
from gspc_trio.protocol.plain import from_json, to_json
from gspc_trio.records.shell.durable_files import (
    THIS_MACHINE,
    FileSystem,
    make_directories,
    put_in_place,
)

SAVE_INTERVAL_S = 0.2
"""How long after its end a job is saved at the latest, if the disk is not busy."""

SUFFIX = ".json"

log: logging.Logger = logging.getLogger(__name__)


class HistoryFiles:
    """Keeps what a run-time system keeps of jobs that are over in files, for the next one.

    Args:
        folder: where; made if it is not there.
        files: the file system that it is in.
    """

    def __init__(self, folder: Path, files: FileSystem = THIS_MACHINE) -> None:
        self._folder = folder
        self._files = files
        self._written: dict[JobId, EndedJob] = {}
        self._changes = -1
        self._failed = False

    def restore(self, service: RtsService) -> None:
        """Tell a new service, before it listens, of the jobs that ended under earlier ones.

        Raises:
            OSError: the directory cannot be made or read.
        """
        make_directories(self._files, self._folder)
        found = filter(None, map(self._read, self._names()))
        for job in sorted(found, key=lambda job: job.ended_s):
            self._written[job.job] = service.restore_ended(job)

    async def follow(self, service: RtsService) -> None:
        """Save what is new, and remove what is no longer kept, until cancelled."""
        while True:
            history = service.machine.history
            if history.changes != self._changes:
                self._changes = history.changes
                await self._files.wait(self._save, history.jobs, service.records.opened.wall_offset_s)
            await trio.sleep(SAVE_INTERVAL_S)

    def finish(self, service: RtsService) -> None:
        """Save what is new after a service has ended."""
        self._save(service.machine.history.jobs, service.records.opened.wall_offset_s)

    def _names(self) -> list[str]:
        return [name for name in self._files.names(self._folder) if name.endswith(SUFFIX)]

    def _read(self, name: str) -> EndedJob | None:
        path = self._folder / name
        try:
            job = from_json(self._files.read(path), EndedJob)
        except ValueError as error:
            log.warning("%s is damaged (%s): the job is forgotten", path, error)
            return None
        return job if name == job.job + SUFFIX else None

    def _save(self, jobs: list[EndedJob], wall_offset_s: float) -> None:
        """Bring the files up to date; a disk that takes no more ends nobody's work."""
        there = {job.job + SUFFIX for job in jobs}
        try:
            for job in jobs:
                if self._written.get(job.job) is not job:
                    text = to_json(replace(job, ended_s=job.ended_s + wall_offset_s))
                    path = self._folder / f"{job.job}{SUFFIX}"
                    self._files.close(put_in_place(self._files, path, text.encode()))
                    self._written[job.job] = job
            for name in self._names():
                if name not in there:
                    self._files.remove(self._folder / name)
                    self._written.pop(name.removesuffix(SUFFIX), None)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("jobs that are over cannot be saved in %s: %s", self._folder, error)
            self._failed = True
            self._changes = -1  # so that it is tried again
