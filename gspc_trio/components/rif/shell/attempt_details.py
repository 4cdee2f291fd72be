"""What a RIF tells a job server of one attempt at one of its workers: only when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from gspc_trio.components.worker.machine import Worker
from gspc_trio.components.worker.messages import AttemptStatus, GetAttempt
from gspc_trio.components.worker.phases import AttemptPhase
from gspc_trio.components.worker.shell.worker import WorkerShell
from gspc_trio.core.ids import JobId, ResourceId
from gspc_trio.nursery.connections.rpc import IncomingCall

READ_TIMEOUT_S = 1.0
"""Seconds that reading what was printed may take; then it is told without."""


async def answer_job(
    call: IncomingCall,
    job: JobId | None,
    workers: Mapping[ResourceId, Worker],
    shells: Mapping[ResourceId, WorkerShell],
) -> None:
    """Answer a call of a job server at a RIF: how one of its attempts is, and what it has printed so far.

    Args:
        call: to be answered.
        job: who calls, None if it has not said so.
        workers, shells: of the RIF.
    """
    asked = call.body
    if not isinstance(asked, GetAttempt):
        call.fail(TypeError(f"a RIF cannot be asked for {type(asked).__name__} by a job"))
    elif job is None or asked.job != job:
        call.fail(ValueError(f"job {job or '(none)'} asks for an attempt of job {asked.job}"))
    else:
        call.reply(await _status(asked, workers, shells))


async def _status(
    asked: GetAttempt, workers: Mapping[ResourceId, Worker], shells: Mapping[ResourceId, WorkerShell]
) -> AttemptStatus:
    name, key = asked.resource_id, (asked.task_id, asked.attempt)

    def phase() -> AttemptPhase | None:
        worker = workers.get(name)
        return worker.status(key) if worker is not None and worker.job == asked.job else None

    before, shell = phase(), shells.get(name)
    if before is None or shell is None:
        return AttemptStatus("")
    pid, stdout, stderr = shell.pid_for(asked.job), b"", b""
    if before is AttemptPhase.COMPUTE:
        with trio.move_on_after(READ_TIMEOUT_S):
            stdout, stderr = await shell.printed(asked.job)
        if phase() is not before:  # meanwhile it has ended: what was read may be another's
            return AttemptStatus("")
    return AttemptStatus(before.value, pid, stdout, stderr)
