"""The strategies of batch systems: a RIF is a batch job of one node (RTS-1).

The script of the job has no secrets. What the RIF is told lies in a file that only the user can read, in a
directory that both this host and the nodes see. It is removed when the job is over, so that a job which
nobody waits for any more ends at once.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import socket
from pathlib import Path

import trio
from attrs import evolve

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    Command,
    CommandResult,
    Provider,
    QueryFailed,
    request_of,
)
from gspc_trio.components.provision.shell.strategies import (
    RIF_OPTIONS,
    check_reachable,
    order_line,
    remote_command,
)
from gspc_trio.components.provision.site import (
    AskJob,
    BatchSite,
    CancelAnswered,
    CancelJob,
    JobAnswered,
    JobForgotten,
    JobMoved,
    JobOver,
    JobsListed,
    JobUnwanted,
    JobWanted,
    ListQueue,
    QueryTimes,
    SiteAction,
    SiteEvent,
    SubmitAnswered,
    SubmitJob,
    SubmitRefused,
)
from gspc_trio.components.provision.strategy import OutOfSight, RifOrder, StrategyError, check_options
from gspc_trio.compute.folders import Folders
from gspc_trio.core.machine import Performer, performs
from gspc_trio.nursery.scopes.drive import Inbox, drive

log = logging.getLogger(__name__)

BATCH_OPTIONS = ("queue", "account", "arguments", "shared", "python")
"""Options of these strategies, besides those of the RIF."""

COMMAND_TIMEOUT_S = 60.0
"""A command of the batch system that takes longer is killed; what it has done is unclear."""

STOP_S = 8.0
"""How long to wait until a job that was cancelled is gone; then it is named in the log, and left."""

OUTPUT_TAIL_BYTES = 4096
"""How much of what a job printed is looked at, from the end."""

SHARED_FOLDER = ".gspc-trio"
"""In the home directory: where the files for jobs are, if nothing else is said."""


class _Run:
    """One batch job.

    Attributes:
        request, order: what is submitted, and for which RIF.
        nursery: for its commands, when ``is_served`` is set.
        over: how it is over with it, when ``ended`` is set.
    """

    def __init__(self, request: BatchRequest, order: RifOrder) -> None:
        self.request = request
        self.order = order
        self.nursery: trio.Nursery
        self.is_served = trio.Event()
        self.ended = trio.Event()
        self.over: JobOver | None = None


class BatchStrategy(Performer[SiteAction]):
    """Starts each RIF as a batch job of one node, which ends with its run-time system.

    Options: ``queue`` (partition) and ``account``; ``arguments``, more for the command that submits;
    ``shared``, a directory that the nodes see, too (by default ``~/.gspc-trio``); ``python``, the interpreter
    on the nodes; those of the RIF, of which the batch system gets ``time``, too.

    Args:
        provider: knows the batch system.
        times: when the batch system is asked.
    """

    def __init__(self, provider: Provider, times: QueryTimes | None = None) -> None:
        self._provider = provider
        self._inbox: Inbox[SiteEvent] = Inbox()
        self._site = BatchSite(provider.name, times or QueryTimes())
        self._runs: dict[str, _Run] = {}
        self._folders: dict[str, Folders] = {}
        self._turn = trio.Lock()
        self._driver: trio.Nursery | None = None
        """Nursery of the run in which the site is driven, for what concerns no single job."""

    async def run(self, order: RifOrder) -> str:
        """Submit the job, and wait until it is over; when cancelled, cancel it."""
        own = self._provider.options
        check_options(order, *BATCH_OPTIONS, *own, *RIF_OPTIONS)
        if not self._provider.is_here:
            check_reachable(order)
        name = f"gspc-{order.rif_id}-{order.incarnation}-{secrets.token_hex(4)}"
        try:
            wanted = request_of(name, order.cores, order.options)
        except ValueError as error:
            raise StrategyError(str(error)) from error
        with self._folders_in(order.options.get("shared", "")).lent() as folder:
            options = {option: order.options[option] for option in own if option in order.options}
            request = evolve(wanted, output=f"{folder}/output", folder=folder, options=options)
            run = _Run(self._scripted(order, request), order)
            over = await self._run(name, run)
            order.said.extend(_last_lines(request.output))
        if over.how == "refused":
            raise StrategyError(over.reason)
        if over.how == "missing" and order.grace_s:
            raise OutOfSight(over.reason)
        return over.reason

    async def _run(self, name: str, run: _Run) -> JobOver:
        """Have the job submitted, watched, and cancelled if this is cancelled."""
        served = trio.CancelScope(shield=True)
        self._runs[name] = run
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve, run, served)
                with trio.CancelScope(shield=True):
                    await run.is_served.wait()
                try:
                    self._inbox.put(JobWanted(name))
                    await run.ended.wait()
                finally:
                    if run.over is None:
                        await self._stop(name, run)
                    elif self._provider.secret_path:
                        await self._cancel(CancelJob(name, ""))  # it keeps the secret else
                    served.cancel()
        finally:
            del self._runs[name]
        assert run.over is not None
        return run.over

    async def _serve(self, run: _Run, scope: trio.CancelScope) -> None:
        """Run the commands of one job and, as long as no other does, drive the site."""
        with scope:
            async with trio.open_nursery() as run.nursery:
                run.is_served.set()
                async with self._turn:
                    self._driver = run.nursery
                    await drive(self._site, self._inbox, self.perform)

    async def _stop(self, name: str, run: _Run) -> None:
        with trio.move_on_after(STOP_S, shield=True):
            self._inbox.put(JobUnwanted(name))
            await run.ended.wait()
        if run.over is None:
            self._inbox.put(JobForgotten(name))
            log.warning(
                "%s has not said within %g s that the job %s is gone: look for it, and cancel it by hand",
                self._provider.name, STOP_S, name,
            )  # fmt: skip

    def _scripted(self, order: RifOrder, request: BatchRequest) -> BatchRequest:
        """Write what the RIF is told, and the script that starts it so; return the whole request."""
        provider, told = self._provider, order_line(order)
        path = provider.secret_path or os.path.join(request.folder, "order")
        lines = ["#!/bin/sh", f"# RIF {order.rif_id} of gspc-trio"]
        if provider.restart_variable:
            again = f'[ "${{{provider.restart_variable}:-0}}" = 0 ]'
            lines.append(f"{again} || {{ echo 'the job was requeued: another takes its place'; exit 1; }}")
        lines.append(provider.launch(request, f"{remote_command(order.options)} < {shlex.quote(path)}"))
        script = "\n".join(lines) + "\n"
        _write(os.path.join(request.folder, "script"), script.encode())
        if provider.secret_path:
            return evolve(request, script=script, secret=told.decode())
        _write(path, told)
        return evolve(request, script=script)

    def _folders_in(self, shared: str) -> Folders:
        """Return the directories for jobs in one that the nodes see, too."""
        parent = shared or str(Path.home() / SHARED_FOLDER)
        if parent not in self._folders:
            Path(parent).mkdir(mode=0o700, exist_ok=True)
            # Only on the same host does a lock tell what was left. No host has "_" in its name.
            self._folders[parent] = Folders(
                parent, f"batch-{socket.gethostname()}_"
            )  # no host has "_" in its name
        return self._folders[parent]

    # What the site decides ----------------------------------------------------------------------------------

    @performs(SubmitJob)
    def _submit_job(self, action: SubmitJob) -> None:
        run = self._runs[action.name]
        run.nursery.start_soon(self._submit, action.name, run)

    @performs(ListQueue)
    def _list_jobs(self, _action: ListQueue) -> None:
        assert self._driver is not None
        self._driver.start_soon(self._list)

    @performs(AskJob)
    def _ask_job(self, action: AskJob) -> None:
        if action.name in self._runs:
            self._runs[action.name].nursery.start_soon(self._ask, action)

    @performs(CancelJob)
    def _cancel_job(self, action: CancelJob) -> None:
        if action.name in self._runs:
            self._runs[action.name].nursery.start_soon(self._cancel, action)

    @performs(JobMoved)
    def _job_moved(self, action: JobMoved) -> None:
        log.info("%s: %s", action.name, action.text)
        if action.name in self._runs:
            self._runs[action.name].order.tell(action.text)

    @performs(JobOver)
    def _job_over(self, action: JobOver) -> None:
        if action.name in self._runs:
            self._runs[action.name].over = action
            self._runs[action.name].ended.set()

    # Commands -----------------------------------------------------------------------------------------------

    async def _submit(self, name: str, run: _Run) -> None:
        event: SiteEvent = SubmitAnswered(name, None)
        command: Command = ()
        try:
            command = self._provider.submit(run.request)
            result = await self._command(command, self._provider.submit_input(run.request))
            if result is not None:
                event = SubmitAnswered(name, self._provider.submitted(result))
        except BadRequest as error:
            event = SubmitRefused(name, str(error))
        except OSError as error:
            event = SubmitRefused(name, f"cannot run {command[0]} here: {error.strerror}")
        finally:
            self._inbox.put(event)

    async def _list(self) -> None:
        jobs: tuple[BatchJob, ...] | None = None
        try:
            jobs = await self._query("")
        finally:
            self._inbox.put(JobsListed(jobs))

    async def _ask(self, action: AskJob) -> None:
        jobs: tuple[BatchJob, ...] | None = None
        try:
            jobs = await self._query(action.job_id)
        finally:
            self._inbox.put(JobAnswered(action.name, jobs))

    async def _cancel(self, action: CancelJob) -> None:
        try:
            await self._command(self._provider.cancel(action.job_id, action.name))
        except OSError as error:
            log.warning("cannot cancel %s: %s", action.name, error)
        finally:
            self._inbox.put(CancelAnswered(action.name))

    async def _query(self, job_id: str) -> tuple[BatchJob, ...] | None:
        """Return the jobs that the batch system tells of, or None if it does not."""
        try:
            result = await self._command(self._provider.query(job_id))
            return None if result is None else self._provider.told(result)
        except (QueryFailed, OSError) as error:
            log.warning("%s does not tell of its jobs: %s", self._provider.name, error)
            return None

    async def _command(self, command: Command, stdin: str = "") -> CommandResult | None:
        """Run a command to its end, or for so long and return None.

        Raises:
            OSError: it cannot be started.
        """
        with trio.move_on_after(COMMAND_TIMEOUT_S):
            done = await trio.run_process(
                command, stdin=stdin.encode(), capture_stdout=True, capture_stderr=True, check=False
            )
            output, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
            return CommandResult(done.returncode, output, errors)
        log.warning("%s has not ended within %g s", command[0], COMMAND_TIMEOUT_S)
        return None


def _write(path: str, data: bytes) -> None:
    """Write a new file that nobody else can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def _last_lines(path: str) -> list[str]:
    """Return the last lines that a job has printed, if there are any."""
    try:
        with open(path, "rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, size_bytes - OUTPUT_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]
