"""The shell of a job's cache: a thread looks tasks up, and keeps what they return.

Nothing waits for a result to be kept, but for the end of the job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

import trio

from gspc_trio.components.job.cache import (
    CacheCounts,
    CacheEntry,
    CacheSettings,
    Counting,
    NotCacheable,
    check_result,
)
from gspc_trio.components.job.cache_keys import CacheKey, CacheKeys
from gspc_trio.components.job.machine import Look, LookedUp, LookUpTasks
from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.job.shell.cache_files import CacheDirectory
from gspc_trio.components.job.shell.identities import FileIdentities
from gspc_trio.components.job.task_key import files_stored
from gspc_trio.core.ids import TaskId
from gspc_trio.core.staging import DEFAULT_LIMITS
from gspc_trio.core.task import Outcome, Reason, Task, TaskState
from gspc_trio.nursery.scopes.drive import Put

log: logging.Logger = logging.getLogger(__name__)

TASKS_MAX = 64
"""Tasks that are looked up, or results that are kept, before others are told of it."""

SHRINK_SHARE = 0.05
"""Whenever so much of what a cache may have was added, it is looked whether that is too much."""


class ResultCache:
    """The cache of one job.

    Args:
        settings: of the cache.
        code: returns an entry of the code table, encoded.
        directory: of the files on this host that tasks fetch and store.
        put: takes events for the job's machine.
        initializer: code that compute processes run first.
        files_max: more files are no set.

    Raises:
        CacheError: the directory cannot be used.
    """

    def __init__(
        self,
        settings: CacheSettings,
        code: Callable[[int], bytes],
        directory: str,
        put: Put,
        initializer: bytes = b"",
        files_max: int = DEFAULT_LIMITS.files_max,
    ) -> None:
        self._settings = settings
        self._files = FileIdentities(directory, settings.files, files_max)
        self._keys = CacheKeys(code, self._files, initializer)
        self._entries = CacheDirectory(settings.directory)
        self._put = put
        self._asked: list[Task] = []
        self._done: list[TaskDone] = []
        self._looking: set[TaskId] = set()
        self._running: dict[TaskId, CacheKey] = {}
        self._work = trio.Event()
        self._job_waits = False
        self._counting = Counting()
        self._has_warned = False
        self._added_bytes = settings.size_bytes  # so that the first time it is looked how much there is

    def counts(self) -> CacheCounts:
        """Return what it was good for so far."""
        return self._counting.counts()

    def look_up(self, wanted: LookUpTasks) -> None:
        """Have tasks looked up; the job's machine is told."""
        self._asked += wanted.tasks
        self._looking.update(task.task_id for task in wanted.tasks)
        self._work.set()

    def ended(self, done: TaskDone) -> None:
        """Keep the result of a task, if it is one that was looked up and has finished."""
        if done.task_id not in self._running:
            self._looking.discard(done.task_id)  # it was cancelled meanwhile
            return
        if done.state is TaskState.FINISHED:
            self._done.append(done)
            self._work.set()
            return
        del self._running[done.task_id]
        self._tell_job()

    def may_end(self, _finished: bool = True) -> bool:
        """Return whether all is kept; if not, the job's machine is told when it is."""
        self._job_waits = bool(self._running)
        return not self._job_waits

    def _tell_job(self) -> None:
        if self._job_waits and not self._running:
            self._put(Look())

    async def run(self) -> None:
        """Look up and keep until this is cancelled."""
        try:
            await self._work_on()
        finally:
            self._entries.close()

    async def _work_on(self) -> None:
        while True:
            await self._work.wait()
            self._work = trio.Event()
            while self._done or self._asked:
                done, self._done = self._done[:TASKS_MAX], self._done[TASKS_MAX:]
                if done:
                    await trio.to_thread.run_sync(self._keep_all, done)
                    for each in done:
                        del self._running[each.task_id]
                    self._tell_job()
                asked, self._asked = self._asked[:TASKS_MAX], self._asked[TASKS_MAX:]
                if asked:
                    found, missed = await trio.to_thread.run_sync(self._look_up_all, asked)
                    looking = self._looking
                    self._running.update((name, key) for name, key in missed.items() if name in looking)
                    names = {task.task_id for task in asked}
                    looking -= names
                    to_run = names - {outcome.task_id for outcome in found}
                    self._put(LookedUp(tuple(found), tuple(sorted(to_run))))

    # In the thread

    def _look_up_all(self, tasks: list[Task]) -> tuple[list[Outcome], dict[TaskId, CacheKey]]:
        """Return the results that are there, and the keys under which others can be kept."""
        found: list[Outcome] = []
        missed: dict[TaskId, CacheKey] = {}
        for task in tasks:
            try:
                key = self._keys.key_of(task)
                entry = self._entries.get(key.key)
                if entry is not None and self._files.are_same(entry.stored):
                    found.append(Outcome(task.task_id, 0, Reason.FINISHED, entry.values))
                    self._counting.found += 1
                else:
                    missed[task.task_id] = key
            except NotCacheable as error:
                self._counting.refuse(f"{task.name}: {error}")
        return found, missed

    def _keep_all(self, ended: list[TaskDone]) -> None:
        for done in ended:
            try:
                self._keep(done, self._running[done.task_id])
            except NotCacheable as error:
                self._counting.refuse(f"{done.name}: {error}")
            except OSError as error:
                if not self._has_warned:
                    self._has_warned = True
                    where, why = self._settings.directory, error.strerror
                    log.warning("results cannot be kept in the cache %s: %s", where, why)
                self._counting.refuse(f"the cache cannot be written: {error.strerror}")

    def _keep(self, done: TaskDone, key: CacheKey) -> None:
        outcome, plan = done.outcome, key.plan
        check_result(outcome.values)
        if not self._files.are_same(key.read):
            raise NotCacheable("a file that it reads has changed while it ran")
        stored = tuple((name, self._files.identity(name)) for name in (files_stored(plan) if plan else ()))
        entry = CacheEntry(done.name, outcome.values, stored, outcome.duration_s)
        limit = self._settings.size_bytes
        if sum(len(value) for output in outcome.values for value in output) > limit:
            raise NotCacheable("its result has more bytes than the cache may have")
        self._added_bytes += self._entries.put(key.key, entry)
        self._counting.kept += 1
        if self._added_bytes > SHRINK_SHARE * limit:
            self._added_bytes = 0
            with suppress(OSError):
                self._entries.shrink(limit, time.time())
