"""Calls of the engine: their answers, their files, and how they end when they are killed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from attrs import evolve

from gspc_trio.components.launcher.adapter import DirectStart, HostProcess, find_adapter
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
from gspc_trio.components.launcher.options import BadOption, LauncherOptions
from gspc_trio.components.launcher.shell.engine import StudyEngine
from gspc_trio.components.launcher.shell.host_jobs import UNKNOWN_STATUS, HostJobs
from gspc_trio.components.launcher.shell.study_folder import StudyFolder
from gspc_trio.components.launcher.study_job import JobProcess, study_job
from gspc_trio.components.provision.batch import BatchJob, BatchState, Command, CommandResult
from gspc_trio.components.provision.shell.batch_host import BatchHost
from gspc_trio.nursery.scopes.drive import Inbox, SaidBy
from tests.support import until

SERVER = SubmitToEngine(0, "s-0", 0)


class ScriptedHost(BatchHost):
    """A host whose programs answer what they are told to; one without an answer hangs."""

    def __init__(self) -> None:
        self.answers: dict[str, CommandResult | OSError] = {}
        self.ran: list[Command] = []

    async def command(self, command: Command, stdin: str = "") -> CommandResult | None:
        del stdin
        self.ran.append(command)
        answer = next((self.answers[word] for word in command if word in self.answers), None)
        if answer is None:
            await trio.sleep_forever()
        if isinstance(answer, OSError):
            raise answer
        return answer


class EngineUnderTest:
    """An engine, what it answers, and its directory."""

    def __init__(self, engine: StudyEngine, inbox: Inbox[LauncherEvent], folder: StudyFolder) -> None:
        self.engine = engine
        self.path = folder.path
        self._inbox = inbox
        self._events: deque[LauncherEvent | SaidBy] = deque()

    async def next(self) -> LauncherEvent:
        """Return the next answer."""
        with trio.fail_after(60):
            while not self._events:
                self._events.extend(await self._inbox.take())
        event = self._events.popleft()
        assert not isinstance(event, SaidBy)
        return event

    def files(self) -> dict[str, str]:
        """Return the files that the study has, but for scripts."""
        paths = [path for path in self.path.iterdir() if path.is_file() and path.suffix != ".sh"]
        return {path.name: path.read_text() for path in paths}


@asynccontextmanager
async def opened(
    tmp_path: Path, scheduler: str = "slurm", host: BatchHost | None = None, **changed: object
) -> AsyncIterator[EngineUnderTest]:
    change: Callable[..., LauncherOptions] = partial(evolve, LauncherOptions(scheduler=scheduler))
    options = change(**{"server_command": ("serve",), "output_dir": "out", **changed})
    folder, inbox = StudyFolder.make(options, tmp_path), Inbox[LauncherEvent]()

    def write(path: Path, incarnation: int) -> None:
        path.write_text(f"secret {incarnation}")

    async with trio.open_nursery() as nursery:
        adapter = find_adapter(options)
        engine = StudyEngine(nursery, adapter, options, folder, tmp_path, inbox, write, host)
        yield EngineUnderTest(engine, inbox, folder)
        engine.kill()
        nursery.cancel_scope.cancel()
    folder.close()


def answer(output: str, errors: str = "", status: int = 0) -> CommandResult:
    return CommandResult(status, output, errors)


async def test_a_submission_leaves_its_files(tmp_path: Path):
    host = ScriptedHost()
    host.answers["sbatch"] = answer("17\n", "a warning\n")
    async with opened(tmp_path, host=host) as study:
        study.engine.perform(SERVER)
        assert await study.next() == Submitted(0, "17")
        assert study.files() == {"slurm.0.out": "17\n", "slurm.0.err": "a warning\n"}
        assert " serve </dev/null" in (study.path / "sbatch.0.sh").read_text()
        assert (study.path / "secret" / "server.0.json").read_text() == "secret 0"


async def test_a_refused_submission_says_why(tmp_path: Path):
    host = ScriptedHost()
    host.answers["sbatch"] = answer("", "sbatch: error: invalid partition", 1)
    async with opened(tmp_path, host=host) as study:
        study.engine.perform(SERVER)
        words = "sbatch refused it: sbatch: error: invalid partition"
        assert await study.next() == SubmitFailed(0, words)
        host.answers["sbatch"] = FileNotFoundError(2, "No such file or directory", "sbatch")
        study.engine.perform(submission(1))
        assert await study.next() == SubmitFailed(1, "sbatch: No such file or directory")


def submission(uid: int, *client_ids: int) -> SubmitToEngine:
    command = ("solve",) if client_ids else ()
    return SubmitToEngine(uid, f"s-{uid}", 0, client_ids, command)


async def test_a_job_that_a_launcher_before_has_submitted_is_watched(tmp_path: Path):
    host = ScriptedHost()
    host.answers["squeue"] = answer("17|RUNNING|s-3|None\n")
    async with opened(tmp_path, host=host) as study:
        (study.path / "job.3.client.7.status").write_text("9\n")
        study.engine.adopt(submission(3, 7), "17")
        study.engine.perform(ListEngine(4, "17"))
        assert await study.next() == CommandExited(3, 9, 7)
        assert await study.next() == Listed(4, (BatchJob("17", "s-3", BatchState.RUNNING),))


@pytest.mark.process
async def test_a_job_of_this_host_that_nobody_has_started_is_over(tmp_path: Path):
    async with opened(tmp_path, "local") as study:
        study.engine.adopt(submission(3, 7), "")
        assert await study.next() == CommandExited(3, UNKNOWN_STATUS, is_gone=True)


async def test_files_that_cannot_be_written_are_a_failed_submission(tmp_path: Path):
    async with opened(tmp_path, host=ScriptedHost()) as study:
        (study.path / "sbatch.0.sh").mkdir()
        study.engine.perform(SERVER)
        assert await study.next() == SubmitFailed(0, f"{study.path}/sbatch.0.sh: Is a directory")


async def test_lists_have_files_only_if_they_say_something(tmp_path: Path):
    host = ScriptedHost()
    host.answers["squeue"] = answer("")
    async with opened(tmp_path, host=host) as study:
        study.engine.perform(ListEngine(3))
        assert await study.next() == Listed(3, ())
        host.answers["squeue"] = answer("17|RUNNING|s-0|None\n")
        study.engine.perform(ListEngine(4, "17"))
        assert await study.next() == Listed(4, (BatchJob("17", "s-0", BatchState.RUNNING),))
        host.answers["squeue"] = answer("", "slurm_load_jobs error", 1)
        study.engine.perform(ListEngine(5))
        assert await study.next() == ListFailed(5, "slurm does not tell of its jobs: slurm_load_jobs error")
        assert study.files() == {
            "slurm.4.out": "17|RUNNING|s-0|None\n",
            "slurm.5.err": "slurm_load_jobs error",
        }


async def test_without_output_calls_leave_files_only_where_they_fail(tmp_path: Path):
    host = ScriptedHost()
    host.answers["squeue"] = answer("17|RUNNING|s-0|None\n")
    async with opened(tmp_path, host=host, std_output=False) as study:
        study.engine.perform(ListEngine(4))
        assert isinstance(await study.next(), Listed)
        assert study.files() == {}


async def test_calls_that_hang_are_answered_when_they_are_killed(tmp_path: Path):
    host = ScriptedHost()
    async with opened(tmp_path, host=host) as study:
        for action in (SERVER, submission(1, 7), ListEngine(2), CancelAtEngine(3, "s-0", "")):
            study.engine.perform(action)
        await until(lambda: len(host.ran) == 4)
        study.engine.perform(KillCommands())
        answers = [await study.next() for _ in range(4)]
        expected = [Submitted(0, None), Submitted(1, None), ListFailed(2, "the study stops"), Cancelled(3)]
        assert set(answers) == set(expected)
        study.engine.perform(ListEngine(5))  # later ones run
        await until(lambda: len(host.ran) == 5)


async def test_what_was_not_handed_over_before_a_kill_was_not_submitted(tmp_path: Path):
    host = ScriptedHost()
    async with opened(tmp_path, host=host) as study:
        study.engine.perform(SERVER)
        study.engine.perform(KillCommands())
        assert await study.next() == SubmitFailed(0, "the study stops")
    assert host.ran == []


async def test_the_end_of_a_command_is_told_before_the_end_of_its_job(tmp_path: Path):
    host = ScriptedHost()
    host.answers["sbatch"] = answer("17\n")
    host.answers["squeue"] = answer("17|COMPLETED|s-3|None\n")
    async with opened(tmp_path, host=host) as study:
        (study.path / "job.3.client.7.status").write_text("9\n")  # of another study
        study.engine.perform(submission(3, 7))
        assert await study.next() == Submitted(3, "17")
        (study.path / "job.3.client.7.status").write_text("0\n")
        study.engine.perform(ListEngine(4))
        assert await study.next() == CommandExited(3, 0, 7)
        told = BatchJob("17", "s-3", BatchState.ENDED, "COMPLETED")
        assert await study.next() == Listed(4, (told,))


async def test_one_client_of_a_group_is_ended_by_a_file(tmp_path: Path):
    host = ScriptedHost()
    host.answers["sbatch"] = answer("17\n")
    async with opened(tmp_path, host=host, group_size=2) as study:
        study.engine.perform(submission(3, 7, 8))
        study.engine.perform(EndClient(4, 3, "", 8))  # before the job is there
        assert await study.next() == Submitted(3, "17")
        await until((study.path / "job.3.client.8.cancel").exists)


async def test_the_end_of_a_client_is_kept_only_while_its_job_is_submitted(tmp_path: Path):
    host = ScriptedHost()
    host.answers["sbatch"] = answer("", "no such partition", 1)
    async with opened(tmp_path, host=host, group_size=2) as study:
        study.engine.perform(submission(3, 7, 8))
        study.engine.perform(EndClient(4, 3, "", 7))
        assert isinstance(await study.next(), SubmitFailed)
        study.engine.perform(EndClient(5, 3, "", 7))
        await trio.testing.wait_all_tasks_blocked()
        host.answers["sbatch"] = answer("17\n")
        study.engine.perform(submission(3, 7, 8))
        study.engine.perform(EndClient(6, 3, "", 8))
        assert await study.next() == Submitted(3, "17")
        await until((study.path / "job.3.client.8.cancel").exists)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not (study.path / "job.3.client.7.cancel").exists()


# Processes of this host -------------------------------------------------------------------------------------


def group(uid: int, script: str, *client_ids: int) -> SubmitToEngine:
    return SubmitToEngine(uid, f"s-{uid}", 0, client_ids, ("/bin/sh", "-c", script))


async def test_processes_of_this_host_are_watched(tmp_path: Path):
    async with opened(tmp_path, "local", group_size=2) as study:
        study.engine.perform(group(3, "exit $GSPC_CLIENT_ID", 7, 0))
        submitted = await study.next()
        assert isinstance(submitted, Submitted)
        assert submitted == Submitted(3, submitted.job_id, is_running=True)
        ends = {await study.next(), await study.next()}
        assert ends == {CommandExited(3, 7, 7), CommandExited(3, 0, 0)}
        assert await study.next() == CommandExited(3, 7, is_gone=True)
        study.engine.perform(ListEngine(4))
        assert await study.next() == Listed(4, ())


async def test_one_process_is_ended_and_then_the_others_of_its_job(tmp_path: Path):
    async with opened(tmp_path, "local", group_size=2) as study:
        study.engine.perform(group(3, "sleep 1000", 7, 8))
        study.engine.perform(EndClient(4, 3, "", 8))
        submitted = await study.next()
        assert isinstance(submitted, Submitted)
        assert await study.next() == CommandExited(3, 143, 8)
        study.engine.perform(ListEngine(5))
        assert await study.next() == Listed(5, (BatchJob(submitted.job_id or "", "s-3", BatchState.RUNNING),))
        study.engine.perform(CancelAtEngine(6, "s-3", ""))
        last = [await study.next() for _ in range(3)]
        assert set(last) == {
            CommandExited(3, 143, 7),
            CommandExited(3, 143, is_gone=True),
            Cancelled(6),
        }


# Directories ------------------------------------------------------------------------------------------------


def test_two_studies_of_one_second_have_directories_of_their_own(tmp_path: Path):
    options = LauncherOptions(scheduler="local")
    folders = [StudyFolder.make(options, tmp_path) for _ in range(3)]
    assert len({folder.path for folder in folders}) == 3
    assert all(folder.path.name.startswith("study-2") for folder in folders)
    for folder in folders:
        folder.close()


def test_a_study_does_not_take_the_files_of_another(tmp_path: Path):
    options = LauncherOptions(scheduler="local", output_dir="a/b")
    folder = StudyFolder.make(options, tmp_path)
    with pytest.raises(BadOption, match="another launcher runs there"):
        StudyFolder.make(options, tmp_path)
    folder.server_file(0).touch()  # it has begun
    folder.close()
    with pytest.raises(BadOption, match="has the files of a study already: name another directory"):
        StudyFolder.make(options, tmp_path)
    StudyFolder.make(evolve(options, load_from_checkpoint=True), tmp_path).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(BadOption, match=r"output_dir: .*/file: Not a directory|File exists"):
        StudyFolder.make(evolve(options, output_dir="file"), tmp_path)


def test_the_last_lines_of_a_job_are_those_of_its_errors(tmp_path: Path):
    folder = StudyFolder.make(LauncherOptions(scheduler="local", output_dir="out"), tmp_path)
    (folder.path / "job.3.server.out").write_text("found\n")
    (folder.path / "job.3.server.err").write_text("")
    assert folder.last_lines(3) == ["found"]
    (folder.path / "job.3.server.err").write_text("".join(f"line {number}\n" for number in range(30)))
    assert folder.last_lines(3) == [f"line {number}" for number in range(20, 30)]
    folder.close()


def test_a_pipe_by_the_name_of_a_file_of_a_job_holds_nothing_up(tmp_path: Path):
    folder = StudyFolder.make(LauncherOptions(scheduler="slurm", output_dir="out"), tmp_path)
    processes = [
        JobProcess(client_id, (), str(folder.path / f"job.3.client.{client_id}")) for client_id in (7, 8)
    ]
    os.mkfifo(processes[0].status)
    Path(processes[1].status).write_text("9\n")
    os.mkfifo(folder.path / "job.3.client.7.err")
    (folder.path / "job.3.client.7.out").write_text("out\n")
    assert folder.statuses(processes) == {processes[1].path: 9}
    assert folder.last_lines(3) == ["out"]
    folder.close()


async def test_what_a_killed_process_has_left_elsewhere_is_ended_before_its_end_is_told(tmp_path: Path):
    options = LauncherOptions(scheduler="local", server_command=("serve",), output_dir="out")
    folder = StudyFolder.make(options, tmp_path)
    happened: list[object] = []

    async def run(command: Command) -> None:
        happened.append(command)

    asked = SubmitToEngine(1, "s-1", 0, (7, 8), ("solve",))
    job = study_job(asked, options, str(folder.path), str(tmp_path))
    killed = HostProcess(("/bin/sh", "-c", "kill -s KILL $$"), (7,), ("end the rest of 7",))
    ended = HostProcess(("/bin/sh", "-c", "exit 3"), (8,), ("end the rest of 8",))
    async with trio.open_nursery() as nursery:
        await HostJobs(nursery, folder, happened.append, run).start(job, DirectStart((killed, ended), {}))
    assert happened.index(("end the rest of 7",)) < happened.index(CommandExited(1, 137, 7))
    assert {CommandExited(1, 3, 8), CommandExited(1, 137, is_gone=True)} < {*happened}
    assert ("end the rest of 8",) not in happened
    folder.close()
