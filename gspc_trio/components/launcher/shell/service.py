"""Launcher of one study on trio: its machine is driven, its calls run, its servers are served."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import trio
from attrs import evolve, frozen

from gspc_trio.components.launcher.adapter import Adapter, find_adapter
from gspc_trio.components.launcher.events import (
    CancelAtEngine,
    ClientMoved,
    CloseConnection,
    EndClient,
    KillCommands,
    LauncherAction,
    LauncherEvent,
    LauncherResumed,
    ListEngine,
    PingServer,
    RefuseConnection,
    SendToServer,
    Signal,
    StatesStale,
    Stop,
    SubmitToEngine,
)
from gspc_trio.components.launcher.http_routes import StudyView
from gspc_trio.components.launcher.journal import (
    BadStudyJournal,
    JournaledLauncher,
    StudyFile,
    StudyHead,
    check_head,
    moved,
    moved_record,
    options_of_head,
    restore_launcher,
)
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.options import BadOption, LauncherOptions, launcher_options, read_options
from gspc_trio.components.launcher.shell.engine import EngineAction, StudyEngine
from gspc_trio.components.launcher.shell.http_file import (
    HTTP_FILE,
    HttpAccess,
    HttpFileError,
    read_http_file,
    write_http_file,
)
from gspc_trio.components.launcher.shell.http_server import HttpServer, HttpServers
from gspc_trio.components.launcher.shell.journal_file import StudyJournal
from gspc_trio.components.launcher.shell.journal_writer import JournalWriter
from gspc_trio.components.launcher.shell.server_link import (
    KEY_BYTES,
    ServerLink,
    launcher_limits,
    listen_address,
)
from gspc_trio.components.launcher.shell.study_folder import StudyFolder
from gspc_trio.components.launcher.shell.turns import DrivenAction, DrivenEvent, Mark, MarkedLauncher
from gspc_trio.components.launcher.states import LauncherState
from gspc_trio.components.provision.shell.batch_host import BatchHost
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.machine import Machine, Performer, performs
from gspc_trio.nursery.connections.certificates import Authority
from gspc_trio.nursery.connections.connection_file import ConnectionFileError
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.private_file import process_start
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.nursery.scopes.news import News
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.address import BadAddress
from gspc_trio.records.facts import (
    StreamOpened,
    StudyChanged,
    StudyClientChanged,
    StudyJobChanged,
    StudyRecord,
)
from gspc_trio.version import VERSION

log: logging.Logger = logging.getLogger(__name__)

JOURNAL_PATIENCE_S = 3600.0
"""How long servers wait for the launcher that goes on for one that was killed."""

LATER_S = 5.0
"""What a study may take to stop beyond its ``stop_grace_s``, seconds."""

LinkAction = SendToServer | PingServer | RefuseConnection | CloseConnection


@frozen
class StudyEnd:
    """How a study has ended.

    Attributes:
        status: exit status: 0 when the server says that it is done, 128 and its number for a signal, or 1.
        reason: why, for people.
        left: names of jobs, and their ids, that may be left at the engine.
        lines: the last lines of the job that tells more.
    """

    status: int
    reason: str
    left: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


class RunningStudy(Performer[DrivenAction]):
    """A study that is launched; see :func:`open_launcher`.

    Attributes:
        name: the names of its jobs begin so.
        output_dir: absolute path of the directory of all files.
        address: at which its servers connect.
        http_address: of its HTTP interface.
        view: what is known of it.
    """

    def __init__(
        self,
        options: LauncherOptions,
        folder: StudyFolder,
        records: Callable[[StudyRecord], None] | None,
        name: str,
        jobs_per_server: int,
        *,
        resumable: bool,
    ) -> None:
        self.name = name
        self.output_dir: Path = folder.path
        self.address = ""
        self.http_address = ""
        self.view: StudyView = StudyView()
        self._folder = folder
        self._records = records
        self._machine = Launcher(
            options, self.name, records=True, resumable=resumable, jobs_per_server=jobs_per_server
        )
        self._driven: Machine[LauncherEvent, LauncherAction] = self._machine
        self._news = News()
        self._head: StudyHead | None = None
        self._writer: JournalWriter | None = None
        self._journaled: JournaledLauncher | None = None
        self._shift_s = 0.0
        self._goes_on = False
        self._inbox: Inbox[DrivenEvent] = Inbox()
        self._engine: StudyEngine | None = None
        self._link: ServerLink | None = None
        self._http = HttpServers(self._inbox, lambda: self._machine.connected)
        self._stop: Stop | None = None
        self._end: StudyEnd | None = None
        self._ended = trio.Event()

    @property
    def state(self) -> LauncherState:
        """Where the launcher is."""
        return self._machine.state

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Have all jobs cancelled, and the study end, as this signal would; twice changes nothing."""
        self._inbox.put(Signal(number))
        if self._writer is not None:
            self._writer.open()

    async def wait(self) -> StudyEnd:
        """Wait for the end of the study."""
        await self._ended.wait()
        assert self._end is not None
        return self._end

    async def note_in(self, journal: StudyJournal, head: StudyHead) -> None:
        """Note all that happens, and go on where a launcher before this one was, if there was one.

        Args:
            journal: that is open.
            head: what its files begin with.

        Raises:
            BadOption: the journal cannot be used.
        """
        if journal.kept is not None:
            await self._go_on_from(journal.kept, journal.age_s)
        if self._stop is not None:
            log.warning("the study in the journal has ended; for another one name another directory")
            return
        self._head = head
        self._writer = JournalWriter(journal, self.perform, self._begin_file)
        self._journaled = JournaledLauncher(self._machine, self._writer.note, self._shift_s)
        self._driven = self._journaled
        try:
            await journal.begin(self._begin_file())
        except OSError as error:
            raise BadOption(f"journal: {journal.name}: {error.strerror}") from error

    async def _go_on_from(self, kept: StudyFile, age_s: float) -> None:
        """Be where the launcher was that has written this, so many seconds ago."""
        since: list[StudyRecord] = []
        try:
            last_s = await trio.to_thread.run_sync(restore_launcher, self._machine, kept, since.append)
        except BadStudyJournal as error:
            raise BadOption(f"journal: {error}") from error
        self._goes_on = self.state is not LauncherState.IDLE
        self._shift_s = last_s + age_s - trio.current_time()
        view = moved(kept.view, -self._shift_s)
        self.view.restore(view)
        if self._records is not None:
            for record in view.progress:
                self._records(record)
        for record in since:
            self._record(record)
        if (end := self._machine.end) is not None:
            self._stopped(end)

    def _begin_file(self) -> Callable[[], StudyFile]:
        """Return what makes the beginning of a file of the journal of all that is known now."""
        assert self._journaled is not None, "there is a journal"
        assert self._head is not None
        head, launcher = self._head, self._journaled.begin_file()
        view, shift_s = self.view.kept(), self._shift_s
        return lambda: StudyFile(head, launcher, moved(view, shift_s), [])

    def _take_over(self, engine: StudyEngine, link: ServerLink) -> None:
        """Take over what a launcher before this one has submitted; its server finds this one.

        Raises:
            BadOption: the file for the server cannot be written.
        """
        incarnation, jobs = self._machine.incarnation, self._machine.jobs()
        try:
            if any(asked.incarnation == incarnation for asked, _ in jobs):  # else it is to come, or gone
                link.write_server_file(self._folder.server_file(incarnation), incarnation, self.http_address)
        except ConnectionFileError as error:
            raise BadOption(f"journal: {error}") from error
        for asked, job_id in jobs:
            engine.adopt(asked, job_id)
        for action in self._driven.handle(LauncherResumed(), trio.current_time()):
            self._carry_out(action)

    def _carry_out(self, action: DrivenAction) -> None:
        """Do what the launcher decides; with a journal when it is noted why. A ping waits for no disk."""
        if self._writer is None or isinstance(action, PingServer):
            self.perform(action)
        else:
            self._writer.do(action)

    async def _run(self, engine: StudyEngine, link: ServerLink) -> None:
        """Drive the machine until it stops."""
        self._engine, self._link = engine, link
        try:
            async with trio.open_nursery() as nursery:
                if self._writer is not None:
                    nursery.start_soon(self._writer.run)
                if self._goes_on and self._stop is None:
                    self._take_over(engine, link)
                await drive(MarkedLauncher(self._driven), self._inbox, self._carry_out)
                if self._writer is not None:
                    with trio.move_on_after(LATER_S):
                        await self._writer.finish()
                nursery.cancel_scope.cancel()
            stop = self._stop
            assert stop is not None, "the inbox is closed when the machine has stopped"
            lines: list[str] = []
            if stop.output_uid is not None:
                lines = await trio.to_thread.run_sync(self._folder.last_lines, stop.output_uid)
            self._end = StudyEnd(stop.status, stop.reason, stop.left, tuple(lines))
        finally:
            self._ended.set()

    @performs(SubmitToEngine, ListEngine, CancelAtEngine, EndClient, KillCommands)
    def _call(self, action: EngineAction) -> None:
        assert self._engine is not None, "it runs"
        _log(action)
        self._engine.perform(action)

    @performs(SendToServer, PingServer, RefuseConnection, CloseConnection)
    def _tell(self, action: LinkAction) -> None:
        assert self._link is not None, "it runs"
        _log(action)
        self._http.perform(action)
        if not self._http.takes(action):
            self._link.perform(action)

    @performs(StudyChanged, StudyJobChanged, StudyClientChanged)
    def _record(self, record: StudyRecord) -> None:
        if self._shift_s:
            record = moved_record(record, -self._shift_s)
        self.view.apply(record)
        self._news.tell()
        if self._records is not None:
            self._records(record)

    @performs(Mark)
    def _passed(self, action: Mark) -> None:
        action.passed.set()

    @performs(Stop)
    def _stopped(self, action: Stop) -> None:
        self._stop = action
        self._inbox.close()


def _log(action: EngineAction | LinkAction) -> None:
    """Tell people who want to know what happens."""
    match action:
        case SubmitToEngine(name=name, client_ids=ids):
            what = f"client {', '.join(map(str, ids))}" if ids else f"server {action.incarnation}"
            log.info("submit %s: %s", name, what)
        case CancelAtEngine(name=name):
            log.info("cancel %s", name)
        case SendToServer(body=ClientMoved(client_id=client_id, state=state, text=text)):
            log.info("client %d is %s: %s", client_id, state, text)
        case SendToServer(body=StatesStale(reason=reason)):
            log.warning("what is known of jobs is old: %s", reason)
        case RefuseConnection(reason=reason):
            log.warning("a connection is refused: %s", reason)
        case CloseConnection(reason=reason):
            log.info("the connection of the server is closed: %s", reason)
        case _:
            log.debug("%s", action)


def check_study(options: LauncherOptions, work_dir: Path) -> Adapter:
    """Return the adapter of a study, when all that it needs is there.

    Args:
        options: of the study.
        work_dir: where its jobs run.

    Raises:
        BadOption: something is missing, or cannot be used.
    """
    adapter = find_adapter(options)
    for program in adapter.programs:
        if shutil.which(program) is None:
            raise BadOption(f"scheduler: {options.scheduler} needs the command {program}, which is not here")
    if not options.server_command:
        raise BadOption("server_command: there is none: say which program is the server of the study")
    if adapter.provider is None:
        program = options.server_command[0]
        if shutil.which(str(work_dir / program) if "/" in program else program) is None:
            raise BadOption(f"server_command: there is no command {program!r} here")
    return adapter


async def _open_http(
    nursery: trio.Nursery, study: RunningStudy, link: ServerLink, options: LauncherOptions
) -> None:
    """Open the HTTP interface of a study, and write where it is for the owner of the study.

    Raises:
        BadOption: its port is taken.
        OSError: the file cannot be written.
    """
    now, before = trio.current_time(), None
    if study._goes_on:
        with suppress(HttpFileError):
            before = await trio.to_thread.run_sync(read_http_file, study._folder.secrets)
    server = HttpServer(
        study.view,
        study._news,
        study._http,
        link.incarnation_of,
        study.output_dir,
        options.timer_interval_s,
        StreamOpened(now, time.time() - now, VERSION),
        options.http_token,
        before,
    )
    try:
        study.http_address = await nursery.start(server.run, options.http_port)
    except OSError as error:
        raise BadOption(f"http_port: {options.http_port}: {error.strerror}") from error
    pid = os.getpid()
    here, started = os.uname().nodename, process_start(pid) or 0
    access = HttpAccess(study.http_address, server.token, here, pid, started)
    await trio.to_thread.run_sync(write_http_file, study._folder.secrets, access)


def _journal_of(
    directory: Path | None, options: LauncherOptions, work_dir: Path, keep: ExitStack
) -> tuple[StudyFolder, StudyJournal | None, StudyHead]:
    """Return the directory of the study, its journal, and what does not change in it.

    Args:
        directory: of the journal; None: there is none.
        options: of the study.
        work_dir: to which the directory of the study is relative, if it is a new one.
        keep: closes them.

    Raises:
        BadOption: they cannot be used, or the study in the journal is another one.
    """
    journal = None if directory is None else StudyJournal(directory.absolute())
    if journal is not None:
        keep.callback(journal.close)
    head = journal.kept.head if journal is not None and journal.kept is not None else None
    if head is not None:
        check_head(head, options)
        options = evolve(options, output_dir=head.output_dir, load_from_checkpoint=True)
    folder = StudyFolder.make(options, work_dir)
    keep.callback(folder.close)
    if head is None:
        name = f"gspc-{secrets.token_hex(4)}"
        told = options_of_head(options)
        key = secrets.token_hex(KEY_BYTES)
        head = StudyHead(VERSION, name, str(folder.path), str(work_dir), told, key)
    return folder, journal, head


@asynccontextmanager
async def open_launcher(
    options: LauncherOptions | Mapping[str, object] | Path,
    *,
    tls: bool = False,
    work_dir: Path | None = None,
    records: Callable[[StudyRecord], None] | None = None,
    host: BatchHost | None = None,
    journal: Path | None = None,
) -> AsyncIterator[RunningStudy]:
    """Launch a study for the time of a block: its server, and the clients that this one asks for.

    Yields the study: ``await study.wait()`` returns how it has ended. When the block is left all its jobs are
    cancelled, and it is seen that they are gone, or ``options.stop_grace_s`` is over.

    Args:
        options: of the study; a mapping has those that are not as usual, a path is that of a file with them.
        tls: encrypt connections of servers; others than this host can reach only such.
        work_dir: where jobs run, and to which ``output_dir`` is relative; None: where this program runs.
        records: takes records of all that happens.
        host: where commands of the engine run; this host if it is not given.
        journal: directory in which all that happens is noted. When this program is killed, another one that
            is given the same directory goes on with the study, and takes its jobs over.

    Raises:
        BadOption: it cannot be had like this.
        CertificateError: encryption needs a package that is not installed.
        OSError: the address is taken, or not ours.
    """
    if isinstance(options, Path):
        options = await trio.to_thread.run_sync(read_options, options)
    elif isinstance(options, Mapping):
        options = launcher_options(options)
    work_dir = (work_dir or Path.cwd()).absolute()
    adapter = check_study(options, work_dir)
    try:
        where = listen_address(options.bind, is_encrypted=tls)
    except BadAddress as error:
        raise BadOption(str(error)) from error
    with ExitStack() as keep:
        folder, noted, head = await trio.to_thread.run_sync(_journal_of, journal, options, work_dir, keep)
        work_dir = Path(head.work_dir)
        number = adapter.jobs_per_server
        study = RunningStudy(options, folder, records, head.study, number, resumable=noted is not None)
        if noted is not None:
            await study.note_in(noted, head)
        authority = Authority(folder.secrets / "tls") if tls else None
        network = Network(
            wire_codec,
            secrets.token_bytes(32),
            limits=launcher_limits(options.timer_interval_s),
            credentials="" if authority is None else authority.issue("launcher"),
        )
        patience_s, key = 0.0 if noted is None else JOURNAL_PATIENCE_S, bytes.fromhex(head.key)
        link = ServerLink(network, study._inbox, authority, patience_s, key)
        async with open_scope() as nursery:
            study.address = await nursery.start(link.run, where)
            await _open_http(nursery, study, link, options)
            write_file = partial(link.write_server_file, http=study.http_address)
            engine = StudyEngine(nursery, adapter, options, folder, work_dir, study._inbox, write_file, host)
            nursery.start_soon(engine.watch)
            nursery.start_soon(study._run, engine, link)
            try:
                yield study
            finally:
                with trio.move_on_after(options.stop_grace_s + LATER_S, shield=True):
                    study.stop()
                    await study._ended.wait()
                engine.kill()
                (folder.secrets / HTTP_FILE).unlink(missing_ok=True)
                nursery.cancel_scope.cancel()
