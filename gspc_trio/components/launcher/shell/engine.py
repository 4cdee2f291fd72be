"""Calls of the engine that starts the jobs of a study: each in a task of its own, so that none blocks."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import trio

from gspc_trio.components.launcher.adapter import Adapter, DirectStart, IndirectStart
from gspc_trio.components.launcher.events import (
    CancelAtEngine,
    Cancelled,
    CommandExited,
    EndClient,
    KillCommands,
    LauncherEvent,
    Listed,
    ListEngine,
    ListFailed,
    SubmitFailed,
    Submitted,
    SubmitToEngine,
)
from gspc_trio.components.launcher.options import LauncherOptions
from gspc_trio.components.launcher.shell.host_jobs import HostJobs
from gspc_trio.components.launcher.shell.study_folder import StudyFolder
from gspc_trio.components.launcher.shell.turns import DrivenEvent
from gspc_trio.components.launcher.study_job import JobProcess, StudyJob, study_job
from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchState,
    Command,
    CommandResult,
    QueryFailed,
)
from gspc_trio.components.provision.shell.batch_host import BatchHost
from gspc_trio.core.machine import Performer, performs
from gspc_trio.nursery.connections.connection_file import ConnectionFileError
from gspc_trio.nursery.scopes.drive import Inbox

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

COMMANDS_MAX = 8
"""So many commands that submit clients run at a time, and so many that cancel or ask for one job."""

LOOK_S = 0.5
"""How often files of commands that have ended are looked for, seconds."""

LOOKS_PER_S = 200
"""So many files are looked for in a second, at most: with more jobs each is looked for less often."""

EngineAction: TypeAlias = SubmitToEngine | ListEngine | CancelAtEngine | EndClient | KillCommands


class _Call:
    """A call of the engine that has not been answered.

    Attributes:
        killed: the answer if it is killed now; None: it cannot be, and ends soon.
        submits: number of the job that it submits; None: it does something else.
        unwanted: clients of that job that are to end as soon as it is there.
    """

    def __init__(self, killed: LauncherEvent | None, submits: int | None = None) -> None:
        self.killed = killed
        self.submits = submits
        self.unwanted: list[int] = []
        self.scope = trio.CancelScope()


class StudyEngine(Performer[EngineAction]):
    """The engine of one study: it submits, lists and cancels jobs, and sees how their commands end.

    Args:
        nursery: in which calls run.
        adapter: knows how jobs are started.
        options: of the study.
        folder: of the study.
        work_dir: in which jobs run.
        inbox: of the machine, which gets the answers.
        write_server_file: writes the file for a server: its path, and its incarnation.
        host: where commands run.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        adapter: Adapter,
        options: LauncherOptions,
        folder: StudyFolder,
        work_dir: Path,
        inbox: Inbox[DrivenEvent],
        write_server_file: Callable[[Path, int], None],
        host: BatchHost | None = None,
    ) -> None:
        self._nursery = nursery
        self._adapter = adapter
        self._options = options
        self._folder = folder
        self._work_dir = work_dir
        self._inbox = inbox
        self._write_server_file = write_server_file
        self._host = host or BatchHost()
        self._submissions = trio.CapacityLimiter(COMMANDS_MAX)
        self._questions = trio.CapacityLimiter(COMMANDS_MAX)
        self._calls: set[_Call] = set()
        self._here = HostJobs(nursery, folder, inbox.put, self._host.command)
        self._names_here: set[str] = set()
        """Jobs that are, or were, processes of this host, where others are not."""
        self._there: dict[str, tuple[StudyJob, list[JobProcess]]] = {}
        """Job whose script tells how its processes end -> it, and those that have not ended."""

    def adopt(self, asked: SubmitToEngine, job_id: str) -> None:
        """Take over a job that a launcher before this one has submitted, or was about to submit.

        Args:
            asked: what that was asked for.
            job_id: what the engine calls the job, "" if that is not known.
        """
        path = self._folder.server_file(asked.incarnation)
        job = study_job(asked, self._options, str(self._folder.path), str(self._work_dir), str(path))
        start = self._adapter.start(job)
        if isinstance(start, DirectStart):
            self._note_here(job.name)
            self._here.adopt(job, start, job_id)
            self._watch_groups(job, start)
        else:
            self._there[job.name] = job, list(job.processes)

    def _note_here(self, name: str) -> None:
        if self._adapter.provider is not None:
            self._names_here.add(name)

    def _is_here(self, name: str) -> bool:
        """Return whether a job is, or was, processes of this host."""
        return self._adapter.provider is None or name in self._names_here

    async def watch(self) -> None:
        """Look for commands that have ended, for ever."""
        while True:
            count = sum(len(processes) for _, processes in self._there.values())
            await trio.sleep(max(LOOK_S, count / LOOKS_PER_S))
            await self._look(self._folder.statuses)

    def kill(self) -> None:
        """Kill what is left of jobs of this host."""
        self._here.kill()

    # Calls --------------------------------------------------------------------------------------------------

    def _begin(
        self,
        work: Callable[[_Call], Awaitable[LauncherEvent | None]],
        killed: LauncherEvent | None = None,
        turns: trio.CapacityLimiter | None = None,
        submits: int | None = None,
    ) -> None:
        call = _Call(killed, submits)
        self._calls.add(call)
        self._nursery.start_soon(self._run, call, work, turns)

    async def _run(
        self,
        call: _Call,
        work: Callable[[_Call], Awaitable[LauncherEvent | None]],
        turns: trio.CapacityLimiter | None,
    ) -> None:
        with call.scope:
            async with turns or nullcontext():
                self._answer(call, await work(call))

    def _answer(self, call: _Call, event: LauncherEvent | None) -> None:
        if call in self._calls:
            self._calls.remove(call)
            if event is not None:
                self._inbox.put(event)

    @performs(KillCommands)
    def _kill_commands(self, _action: KillCommands) -> None:
        for call in list(self._calls):
            if call.killed is not None:
                call.scope.cancel()
                self._answer(call, call.killed)

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        """Do what may block for long on a shared file system; nobody waits for it once this is cancelled."""
        return await trio.to_thread.run_sync(partial(function, *args), abandon_on_cancel=True)

    async def _command(
        self, uid: int, command: Command, stdin: str = "", *, submits: bool = False
    ) -> CommandResult | None:
        """Run a command to its end, or for so long and return None; what it prints goes to files.

        Raises:
            OSError: it cannot be started.
        """
        result = await self._host.command(command, stdin)
        provider = self._adapter.provider
        if result is None or provider is None:
            return result
        if submits or result.status or self._options.std_output:
            await self._in_thread(self._folder.save, provider.name, uid, result, submits)
        return result

    # Submissions --------------------------------------------------------------------------------------------

    @performs(SubmitToEngine)
    def _submit_job(self, action: SubmitToEngine) -> None:
        turns = self._submissions if action.client_ids else None
        killed = SubmitFailed(action.uid, "the study stops")
        self._begin(partial(self._submit, action), killed, turns, submits=action.uid)

    async def _submit(self, asked: SubmitToEngine, call: _Call) -> LauncherEvent:
        uid = asked.uid
        try:
            job = await self._in_thread(self._job_of, asked)
            start = self._adapter.start(job)
            await self._in_thread(self._folder.prepare, job, start.files)
            if isinstance(start, DirectStart):
                call.killed = None
                self._note_here(job.name)
                event: LauncherEvent = Submitted(uid, await self._here.start(job, start), is_running=True)
                self._watch_groups(job, start)
            else:
                call.killed = Submitted(uid, None)
                event = await self._submit_there(job, start)
        except (BadRequest, ConnectionFileError) as error:
            event = SubmitFailed(uid, str(error))
        except OSError as error:
            event = SubmitFailed(uid, f"{error.filename}: {error.strerror}")
        for client_id in call.unwanted:
            self._begin(partial(self._end, EndClient(uid, uid, "", client_id)))
        return event

    def _watch_groups(self, job: StudyJob, start: DirectStart) -> None:
        """Have looked for the ends of clients that share a process of this host: its own end says nothing."""
        shared = {
            one for process in start.processes if len(process.client_ids) > 1 for one in process.client_ids
        }
        if shared:
            self._there[job.name] = job, [one for one in job.processes if one.client_id in shared]

    def _job_of(self, asked: SubmitToEngine) -> StudyJob:
        """Return what to submit; a server finds its secret in a file.

        Raises:
            ConnectionFileError: that cannot be written.
        """
        path = self._folder.server_file(asked.incarnation)
        if not asked.client_ids:
            self._write_server_file(path, asked.incarnation)
        return study_job(asked, self._options, str(self._folder.path), str(self._work_dir), str(path))

    async def _submit_there(self, job: StudyJob, start: IndirectStart) -> LauncherEvent:
        """Submit a job to a batch system.

        Raises:
            BadRequest: it was refused.
            OSError: the command cannot be started.
        """
        provider = self._adapter.provider
        assert provider is not None, f"the adapter {self._adapter.name} submits, and has no provider"
        self._there[job.name] = job, list(job.processes)
        try:
            result = await self._command(job.uid, start.command, start.stdin, submits=True)
            return Submitted(job.uid, None if result is None else provider.submitted(result))
        except (BadRequest, OSError):
            del self._there[job.name]
            raise

    # Questions ----------------------------------------------------------------------------------------------

    @performs(ListEngine)
    def _list_jobs(self, action: ListEngine) -> None:
        turns = self._questions if action.job_id else None
        self._begin(partial(self._list, action), ListFailed(action.uid, "the study stops"), turns)

    async def _list(self, asked: ListEngine, _call: _Call) -> LauncherEvent:
        provider, jobs = self._adapter.provider, tuple[BatchJob, ...]()
        if provider is not None:
            try:
                result = await self._command(asked.uid, provider.query(asked.job_id))
                if result is None:
                    return ListFailed(asked.uid, f"{provider.name} has not answered in time")
                jobs = provider.told(result)
            except QueryFailed as error:
                return ListFailed(asked.uid, f"{provider.name} does not tell of its jobs: {error}")
            except OSError as error:
                return ListFailed(asked.uid, f"{error.filename}: {error.strerror}")
            await self._look(self._folder.statuses_anew)  # what it says of an end is not all
            for told in jobs:
                if told.state in (BatchState.ENDED, BatchState.LOST):
                    self._there.pop(told.name, None)
        return Listed(asked.uid, jobs + self._here.told())

    async def _look(self, statuses: Callable[[list[JobProcess]], dict[str, int]]) -> None:
        """Look for what scripts say of processes that have ended, and tell of it."""
        running = {job.name for job in self._here.jobs()}
        for name in [one for one in self._there if self._is_here(one) and one not in running]:
            del self._there[name]  # all of it was told
        waiting = [one for _, processes in self._there.values() for one in processes]
        if not waiting:
            return
        found = await self._in_thread(statuses, waiting)
        for name, (job, processes) in list(self._there.items()):
            for one in [one for one in processes if one.path in found]:
                processes.remove(one)
                self._inbox.put(CommandExited(job.uid, found[one.path], one.client_id))
            if not processes:
                self._there.pop(name, None)

    # Ends ---------------------------------------------------------------------------------------------------

    @performs(CancelAtEngine)
    def _cancel_job(self, action: CancelAtEngine) -> None:
        self._begin(partial(self._cancel, action), Cancelled(action.uid), self._questions)

    async def _cancel(self, asked: CancelAtEngine, _call: _Call) -> LauncherEvent:
        provider = self._adapter.provider
        if self._is_here(asked.name):
            await self._run_all(asked.uid, self._here.ends(asked.name))
        elif provider is not None:
            await self._run_all(asked.uid, [provider.cancel(asked.job_id, asked.name)])
        return Cancelled(asked.uid)

    async def _run_all(self, uid: int, commands: Sequence[Command]) -> None:
        """Run these at a time, to their ends; what goes wrong is seen when the job is asked for."""

        async def run(command: Command) -> None:
            try:
                await self._command(uid, command)
            except OSError as error:
                log.warning("cannot cancel: %s: %s", error.filename, error.strerror)

        async with trio.open_nursery() as nursery:
            for command in commands:
                nursery.start_soon(run, command)

    @performs(EndClient)
    def _end_client(self, action: EndClient) -> None:
        self._begin(partial(self._end, action))

    async def _end(self, asked: EndClient, _call: _Call) -> None:
        jobs = [*self._here.jobs(), *(job for job, _ in self._there.values())]
        job = next((one for one in jobs if one.uid == asked.job_uid), None)
        if job is None:
            for call in self._calls:
                if call.submits == asked.job_uid:
                    call.unwanted.append(asked.client_id)
            return
        commands = self._here.ends(job.name, asked.client_id)
        if not commands and not self._is_here(job.name):
            command = self._adapter.end_client(job, asked.job_id, asked.client_id)
            commands = [] if command is None else [command]
        if commands:
            await self._run_all(asked.uid, commands)
        else:
            process = next(one for one in job.processes if one.client_id == asked.client_id)
            await self._in_thread(self._folder.ask_to_end, process)
