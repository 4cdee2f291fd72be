"""``run --detach``: the prompt is back at once, and the job's server goes on in a session of its own.

The command at the prompt starts the same command again, which tells it through a pipe when the job is
accepted. Until then errors of that one are those of the command; afterwards what it prints goes to its log.
"""

from __future__ import annotations

import json as json_texts
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import trio

from gspc_trio.cli.common import (
    CommandError,
    DecidedStatus,
    RtsFiles,
    UsageError,
    home_of,
    print_json,
    running_connection,
)
from gspc_trio.components.job.result import JobResult
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.summary import REPORT_CHARACTERS_MAX
from gspc_trio.core.task import TaskState
from gspc_trio.nursery.scopes.scope import open_scope

ACCEPT_S = 1.0
"""A job that nothing has run of for so long waits for resources: it is accepted."""

BEGUN = (TaskState.SUBMITTED, TaskState.RUNNING, TaskState.FINISHED)


def lasting_connection(rts: RtsFiles) -> Path | dict[str, Path]:
    """Return the connection file of the run-time system on which a detached job is to run, or those.

    Raises:
        CommandError: there is none: one that this command starts would end with it.
    """
    try:
        if isinstance(rts, dict):
            return {name: running_connection(file) for name, file in rts.items()}
        return running_connection(rts)
    except CommandError as error:
        raise CommandError(f"--detach needs a run-time system that goes on: {error}") from None


async def start_detached(rts: RtsFiles, *, json: bool, top: bool, cores: int) -> int:
    """Start this command again in a session of its own; return when its job is accepted, or it has ended.

    Args:
        rts: connection file that was given.
        json: print one JSON object.
        top, cores: options that do not go with it.

    Raises:
        UsageError: one of them was given.
        CommandError: there is no run-time system.
    """
    if top or cores:
        raise UsageError(
            f"--detach cannot be used with {'--top' if top else '--cores'}: leave one of them out"
        )
    lasting_connection(rts)
    name, *arguments = sys.argv[1:]
    ours, theirs = os.pipe()
    command = [sys.executable, "-P", "-m", "gspc_trio.cli.jobserver", name]
    try:
        process = await trio.lowlevel.open_process(
            [*command, "--detached-from", str(theirs), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if json else None,
            pass_fds=(theirs,),
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    told = trio.lowlevel.FdStream(ours)
    try:
        text = await told.receive_some(65536)  # all of it: it is written at once
    except BaseException:
        process.terminate()
        raise
    finally:
        with trio.CancelScope(shield=True):
            await told.aclose()
    if not text:
        status = await process.wait()
        return status if status >= 0 else 128 - status
    accepted = json_texts.loads(text)
    if json:
        print_json(accepted)
    else:
        print("\n".join(_describe(accepted["job"], accepted["name"], accepted["pid"], home_of(rts))))
    return DecidedStatus(0)


def _describe(job: str, name: str, pid: int, rts: Path | None) -> list[str]:
    where = "" if rts is None else f" --rts {rts}"
    commands = {
        f"status {job}": "how far it is",
        f"log {job} --follow": "what its tasks print",
        f"wait {job}": "wait for its end",
        f"stop {job}": "cancel it",
        f"report {job}": "its results, when it is over",
    }
    width = max(map(len, commands))
    lines = [f"  gspc-jobserver {command:<{width}}{where}   {what}" for command, what in commands.items()]
    return [f"{job} ({name}) goes on in process {pid}", *lines]


class Detached:
    """The other side: tells the command at the prompt that the job is accepted, and then keeps to itself.

    Args:
        told: descriptor of the pipe to that command.
    """

    def __init__(self, told: int) -> None:
        os.set_inheritable(told, False)
        self._told: int | None = told
        self._job: Job

    async def follow(self, job: Job, conclude: Callable[[Job, JobResult], None]) -> JobResult:
        """Wait for the end of a job, and do what is to be done then in a thread, before the job leaves.

        Raises:
            JobFailed: the job failed or was stopped.
        """
        self._job = job
        async with open_scope() as nursery:
            if self._told is not None:
                nursery.start_soon(self._accept, self._told)
            result = await job.wait_ended()
        await trio.to_thread.run_sync(conclude, job, result, abandon_on_cancel=True)
        if job.await_rts is not None:  # nobody waits at a prompt, and it is to know how the job has ended
            await job.await_rts()
        return await job.wait()

    async def _accept(self, told: int) -> None:
        job = self._job
        with trio.move_on_after(ACCEPT_S):
            while not (job.has_ended or any(job.machine.counts().get(state) for state in BEGUN)):
                await job.wait_news()
        if job.has_ended and (await job.wait_ended()).state != "finished":
            return  # the command at the prompt says why
        self._keep_own_output()
        accepted = {"job": job.job_id, "name": job.machine.name, "pid": os.getpid()}
        with suppress(BrokenPipeError):  # it was killed
            os.write(told, json_texts.dumps(accepted).encode())
        os.close(told)
        self._told = None

    def _keep_own_output(self) -> None:
        """Have what this process itself prints in the log of its job from now on."""
        ours, theirs = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(theirs, stream.fileno())
        os.close(theirs)
        token = trio.lowlevel.current_trio_token()

        def read() -> None:
            while piece := os.read(ours, 65536):
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(self._printed, piece)

        threading.Thread(target=read, name="own output", daemon=True).start()

    def _printed(self, piece: bytes) -> None:
        self._job.printed.of_job_server(piece, trio.current_time())


class _FirstText(StringIO):
    """Takes a text of any length, and keeps its beginning."""

    def write(self, text: str) -> int:
        super().write(text[: max(0, REPORT_CHARACTERS_MAX - self.tell())])
        return len(text)


def printed_by(function: Callable[[], None]) -> str:
    """Return the beginning of what a function prints on standard output."""
    with redirect_stdout(_FirstText()) as text:
        function()
    return text.getvalue()
