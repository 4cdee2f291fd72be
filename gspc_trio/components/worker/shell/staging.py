"""Staging at a worker: what brings data before compute and takes it away afterwards, and how it is run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeAlias

import trio
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.worker import events as work
from gspc_trio.components.worker.events import AttemptKey
from gspc_trio.components.worker.messages import Finished, Submission
from gspc_trio.components.worker.verdict import is_refusal
from gspc_trio.core.ids import JobId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, TaskError
from gspc_trio.core.uri import mask_text

Settle: TypeAlias = Callable[[], Awaitable[Finished]]
"""Returns what is to be reported of a worker, when others can read the data in it."""


class StagingError(Exception):
    """Data could not be fetched or stored.

    Args:
        message: one line for people; passwords and queries of URIs in it are masked.
        returned: whether the task has nothing to do with it, and is to be tried again.
        kind: of the task's error.
        of_host: the files of this host, or of its site, are to blame.
    """

    def __init__(
        self, message: str, *, returned: bool = False, kind: str = "staging", of_host: bool = False
    ) -> None:
        super().__init__(mask_text(message))
        self.returned = returned
        self.of_host = of_host
        self.kind = kind


class StagedInput(Struct, frozen=True):
    """What stage-in has brought about.

    Attributes:
        submission: what is to be computed instead of what was submitted, or None.
        release: gives back what the attempt has, when it has ended; or None.
        moved: (host, bytes, seconds) of data that came from another host.
    """

    submission: Submission | None = None
    release: Callable[[], Awaitable[None]] | None = None
    moved: tuple[tuple[str, int, float], ...] = ()


class Staging(Protocol):
    """Brings data to a worker before compute and takes it away afterwards."""

    async def stage_in(self, resource: Resource, job: JobId, submission: Submission) -> StagedInput | None:
        """Fetch what the attempt needs; cancelled, drop what was fetched.

        Returns:
            what has come of it, if anything.

        Raises:
            StagingError: it cannot be fetched; the attempt has failed.
        """
        ...

    async def stage_out(
        self, resource: Resource, job: JobId, submission: Submission, outcome: Outcome
    ) -> Outcome | None:
        """Store what the attempt has made; cancelled, drop what was stored.

        Returns:
            what is to be reported instead of the outcome, or None.

        Raises:
            StagingError: it cannot be stored; the attempt has failed.
        """
        ...


class NoStaging:
    """All data travels with the tasks."""

    async def stage_in(self, resource: Resource, job: JobId, submission: Submission) -> None:
        """Nothing is to be fetched."""
        del resource, job, submission
        await trio.lowlevel.checkpoint()

    async def stage_out(
        self, resource: Resource, job: JobId, submission: Submission, outcome: Outcome
    ) -> None:
        """Nothing is to be stored."""
        del resource, job, submission, outcome
        await trio.lowlevel.checkpoint()


class _Staged:
    """What is known of an attempt that has not been reported."""

    __slots__ = ("found", "times_s")

    def __init__(self) -> None:
        self.times_s = [0.0] * 4
        self.found = StagedInput()


class Stagings:
    """The stagings of one worker: each runs until it is done or aborted, and is told to the machine.

    Args:
        put: takes an event for the worker's machine.
        nursery: in which they run.
        clock: seconds since 1970, as compute processes of this host count them.
    """

    def __init__(
        self, put: Callable[[work.WorkerEvent], None], nursery: trio.Nursery, clock: Callable[[], float]
    ) -> None:
        self._put = put
        self._nursery = nursery
        self._clock = clock
        self._running: dict[AttemptKey, trio.CancelScope] = {}
        self._staged: dict[AttemptKey, _Staged] = {}

    def begin_in(self, key: AttemptKey, run: Callable[[], Awaitable[StagedInput | None]]) -> None:
        """Begin stage-in of an attempt."""
        self._begin(key, partial(self._in, key, run))

    def begin_out(self, key: AttemptKey, run: Callable[[], Awaitable[Outcome | None]]) -> None:
        """Begin stage-out of an attempt."""
        self._begin(key, partial(self._out, key, run))

    def abort(self, key: AttemptKey) -> None:
        """End the staging of an attempt; also one that has just ended is answered for."""
        scope = self._running.get(key)
        if scope is None:
            self._put(work.Aborted(key))
        else:
            scope.cancel()

    def reported(self, finished: Finished) -> Finished:
        """Return what is reported of attempts that have ended, with when they were staged.

        What they have had for it is let go.
        """
        staged = self._staged
        if not staged:
            return finished
        outcomes = []
        for outcome in finished.outcomes:
            # One that was refused was never here; another job's may have the same numbers, and be here now.
            key = (outcome.task_id, outcome.attempt)
            known = None if is_refusal(outcome) else staged.pop(key, None)
            if known is not None:
                outcome = replace(outcome, staged_s=tuple(known.times_s), moved=known.found.moved)
                if known.found.release is not None:
                    self._nursery.start_soon(known.found.release)
            outcomes.append(outcome)
        return replace(finished, outcomes=tuple(outcomes))

    def _begin(self, key: AttemptKey, stage: Callable[[], Awaitable[work.StagedIn | work.StagedOut]]) -> None:
        self._running[key] = trio.CancelScope()
        self._staged.setdefault(key, _Staged())
        self._nursery.start_soon(self._run, key, stage)

    async def _run(
        self, key: AttemptKey, stage: Callable[[], Awaitable[work.StagedIn | work.StagedOut]]
    ) -> None:
        event: work.WorkerEvent = work.Aborted(key)
        with self._running[key] as scope:
            try:
                event = await stage()
            except (StagingError, OSError) as error:
                known = error if isinstance(error, StagingError) else StagingError(str(error))
                event = work.StagingFailed(key, TaskError(known.kind, str(known)), known.returned)
        del self._running[key]
        self._put(work.Aborted(key) if scope.cancel_called else event)

    async def _in(self, key: AttemptKey, run: Callable[[], Awaitable[StagedInput | None]]) -> work.StagedIn:
        staged = self._staged[key]
        staged.times_s[0] = self._clock()
        try:
            found = await run()
        finally:
            staged.times_s[1] = self._clock()
        if found is None:
            return work.StagedIn(key)
        staged.found = found
        return work.StagedIn(key, found.submission)

    async def _out(self, key: AttemptKey, run: Callable[[], Awaitable[Outcome | None]]) -> work.StagedOut:
        staged = self._staged[key]
        staged.times_s[2] = self._clock()
        try:
            return work.StagedOut(key, await run())
        finally:
            staged.times_s[3] = self._clock()
