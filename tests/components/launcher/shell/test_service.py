"""Studies that are launched: how they end, and what they need before they begin."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from attrs import evolve

from gspc_trio.components.launcher.events import SubmitFailed
from gspc_trio.components.launcher.http_routes import StudyView
from gspc_trio.components.launcher.journal import JournaledLauncher, StudyFile, StudyHead, options_of_head
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.options import BadOption, LauncherOptions
from gspc_trio.components.launcher.shell.http_client import StudyClient
from gspc_trio.components.launcher.shell.http_file import HTTP_FILE, SECRETS, read_http_file
from gspc_trio.components.launcher.shell.journal_file import StudyJournal
from gspc_trio.components.launcher.shell.service import check_study, open_launcher
from gspc_trio.components.launcher.states import LauncherState
from gspc_trio.core.machine import Tick
from gspc_trio.version import VERSION
from tests.components.launcher.shell.test_engine import ScriptedHost
from tests.support import until, until_ended


def options_of(scheduler: str, *server: str, **changed: object) -> LauncherOptions:
    change: Callable[..., LauncherOptions] = partial(evolve, LauncherOptions(scheduler=scheduler))
    return change(**{"server_command": server, "output_dir": "out", **changed})


async def test_three_servers_that_do_not_connect_end_the_study_with_their_last_lines(tmp_path: Path):
    options = options_of(
        "local", "/bin/sh", "-c", 'echo "mesh $GSPC_CHECKPOINT$GSPC_INCARNATION" >&2; exit 3'
    )
    async with open_launcher(options, work_dir=tmp_path) as study:
        with trio.fail_after(60):
            end = await study.wait()
    assert (end.status, end.left, end.lines) == (1, (), ("mesh 12",))
    assert end.reason.startswith(
        "3 servers in a row have ended before they connected, the last one: local job"
    )
    assert end.reason.endswith("ended: exit status 3")
    outputs = [(tmp_path / "out" / f"job.{uid}.server.err").read_text() for uid in range(3)]
    assert outputs == ["mesh 0\n", "mesh 11\n", "mesh 12\n"]


async def test_a_signal_ends_a_study_whose_submission_hangs_and_names_what_may_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for program in ("sbatch", "squeue", "scancel"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    host = ScriptedHost()
    options = options_of("slurm", "serve", stop_grace_s=0.01)
    async with open_launcher(options, work_dir=tmp_path, host=host) as study:
        await until(lambda: host.ran)
        study.stop(2)
        study.stop(2)
        with trio.fail_after(60):
            end = await study.wait()
    assert (end.status, end.left) == (130, (f"{study.name}-0",))
    assert "sbatch" in host.ran[0]


async def test_a_study_ends_with_its_block(tmp_path: Path):
    options = options_of("local", "/bin/sh", "-c", "echo $$; exec sleep 1000")
    output = tmp_path / "out" / "job.0.server.out"
    async with open_launcher(options, work_dir=tmp_path) as study:
        await until(lambda: output.exists() and output.read_text())
        await until(lambda: study.state is LauncherState.AWAITING)
    assert study.state is LauncherState.STOPPED
    await until_ended(int(output.read_text()))


async def test_options_are_said_by_a_mapping_or_a_file(tmp_path: Path):
    (tmp_path / "study.toml").write_text('scheduler = "local"\noutput_dir = "out"\n')
    for options in ({"scheduler": "local"}, tmp_path / "study.toml"):
        with pytest.raises(BadOption, match="server_command: there is none"):
            async with open_launcher(options, work_dir=tmp_path):
                raise AssertionError("it began")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (options_of("local"), "server_command: there is none"),
        (options_of("local", "nosuch"), "server_command: there is no command 'nosuch' here"),
        (options_of("local", "./nosuch"), "server_command: there is no command './nosuch' here"),
        (options_of("slurm", "serve"), "scheduler: slurm needs the command sbatch, which is not here"),
    ],
)
def test_what_a_study_needs_is_there_before_it_begins(
    options: LauncherOptions, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadOption, match=reason):
        check_study(options, tmp_path)


async def test_an_address_that_others_reach_needs_encryption(tmp_path: Path):
    options = options_of("local", "/bin/sh", bind="0.0.0.0")
    with pytest.raises(BadOption, match=r"bind: other hosts can reach 0\.0\.0\.0"):
        async with open_launcher(options, work_dir=tmp_path):
            raise AssertionError("it began")


async def test_a_server_that_is_still_to_be_submitted_has_no_secret(tmp_path: Path):
    options = options_of("local", "/bin/sh", timer_interval_s=1000.0)
    directory, output = tmp_path / "journal", tmp_path / "out"
    output.mkdir()
    journal = StudyJournal(directory)
    launcher = JournaledLauncher(Launcher(options, "s"), lambda _: None)
    launcher.handle(Tick(), 0.0)
    launcher.handle(SubmitFailed(0, "no"), 0.0)
    head = StudyHead(VERSION, "s", str(output), str(tmp_path), options_of_head(options), "00")
    await journal.begin(lambda: StudyFile(head, launcher.begin_file(), StudyView().kept(), []))
    journal.close()
    async with open_launcher(options, work_dir=tmp_path, journal=directory) as study:
        await trio.testing.wait_all_tasks_blocked()
        assert study.state is LauncherState.RESTARTING
        assert [path.name for path in (output / SECRETS).iterdir()] == [HTTP_FILE]


async def test_a_port_that_is_taken_is_named_and_leaves_nothing(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = options_of("local", "/bin/true", http_port=port)
        with pytest.raises(BadOption, match=f"http_port: {port}: Address already in use"):
            async with open_launcher(options, work_dir=tmp_path):
                raise AssertionError("it has begun")
    assert not (tmp_path / "out").exists()


async def test_the_http_interface_serves_a_study_and_its_file_goes_with_it(tmp_path: Path):
    options = options_of("local", "/bin/sh", "-c", "exec sleep 1000", http_token="wörld")
    secret = tmp_path / "out" / SECRETS
    async with open_launcher(options, work_dir=tmp_path) as study:
        await until(lambda: study.state is LauncherState.AWAITING)
        access = read_http_file(secret)
        assert (access.address, access.host) == (study.http_address, os.uname().nodename)
        told = await trio.to_thread.run_sync(StudyClient(tmp_path / "out").get, "status")
        assert (told["study"], told["state"], told["job_limit"]) == (study.name, "awaiting", 1000)
    assert not (secret / HTTP_FILE).exists()
