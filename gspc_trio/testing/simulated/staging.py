"""Staging on trio's clock: data takes time to come and go, and sometimes cannot."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import trio

from gspc_trio.components.worker.messages import Submission
from gspc_trio.components.worker.shell.staging import StagingError
from gspc_trio.core.ids import JobId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome

Failed = Callable[[JobId, Submission], None]


class SimulatedStaging:
    """Stages for one simulated RIF; how long it takes follows from a task's arguments.

    Args:
        failed: told of each attempt that cannot be staged; about one in twenty first attempts cannot.
        staging_s: how long each stage-in and stage-out takes, none of which fails then; None: it varies.
    """

    def __init__(self, failed: Failed, staging_s: float | None = None) -> None:
        self._failed = failed
        self._staging_s = staging_s

    async def stage_in(self, resource: Resource, job: JobId, submission: Submission) -> None:
        """Fetch nothing, for a while."""
        del resource
        await self._stage(job, submission, 1)

    async def stage_out(
        self, resource: Resource, job: JobId, submission: Submission, outcome: Outcome
    ) -> None:
        """Store nothing, for a while."""
        del resource, outcome
        await self._stage(job, submission, 2)

    async def _stage(self, job: JobId, submission: Submission, way: int) -> None:
        if self._staging_s is not None:
            await trio.sleep(self._staging_s)
            return
        draw = crc32(b"".join(submission.arguments), way)
        await trio.sleep((0.0, 0.001, 0.02, 0.1)[draw % 4])
        if submission.attempt == 1 and draw % 20 == 0:
            self._failed(job, submission)
            raise StagingError("the data cannot be reached")
