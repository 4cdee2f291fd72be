"""A job with a journal outlives its run-time system: it waits for the next one, and goes on there."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from gspc_trio.components.job.result import JobResult, RtsLost
from gspc_trio.components.job.shell.journal import Journal
from gspc_trio.components.job.shell.settings import RESUME_GRACE_S
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import PeerGone

log: logging.Logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.2
"""Seconds between two looks for a run-time system."""


async def outlive_rts(
    attempt: Callable[[], Awaitable[JobResult]],
    journal: Journal | None,
    is_back: Callable[[], Awaitable[bool]] | None,
) -> JobResult:
    """Run a job; one with a journal goes on from it when its run-time system has gone and is back in time.

    Args:
        attempt: runs the job to its end.
        journal: of the job, or None.
        is_back: looks whether there is a run-time system; None if the job's own ends with this program.

    Raises:
        What the attempt raises.
    """
    while True:
        try:
            return await attempt()
        except (RtsLost, ConnectionProblem, PeerGone) as lost:  # as it ran, or as it joined the next one
            if journal is None or is_back is None or not journal.is_begun:
                raise
            log.warning("%s; waiting %g s for it to come back", lost, RESUME_GRACE_S)
            with trio.move_on_after(RESUME_GRACE_S) as scope:
                # Nobody tells of a process that is to come: to look is all there is.
                while not await is_back():  # noqa: ASYNC110
                    await trio.sleep(LOOK_INTERVAL_S)
            if scope.cancelled_caught:
                raise
            journal.read_again()
