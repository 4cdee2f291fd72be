"""The view of a study, live and replayed, and the follower that asks its launcher."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from functools import partial
from pathlib import Path

import pytest
import trio

from gspc_trio.cli.common import CommandError
from gspc_trio.cli.study_commands import cancel, log, status
from gspc_trio.components.launcher.http_questions import StudyRefuses, StudyUnreachable
from gspc_trio.components.launcher.shell.http_client import (
    StudyClient,
    find_study,
)
from gspc_trio.components.launcher.shell.http_file import SECRETS, HttpAccess, write_http_file
from gspc_trio.records.facts import Record, StudyChanged, StudyClientChanged, StudyJobChanged
from gspc_trio.records.lines import encode_record
from gspc_trio.tui.app import TopApp
from gspc_trio.tui.model import RTS, Model
from gspc_trio.tui.news import alerts
from gspc_trio.tui.once import as_lines, snapshot
from gspc_trio.tui.replay import Player, ReplaySource
from gspc_trio.tui.study_follower import StudyFollower
from tests.components.launcher.shell.test_http_server import FIRST, World, open_world
from tests.tui.support import WALL_S, FakeSource, opened, screen_text

RECORDS: tuple[Record, ...] = (
    StudyChanged(0.0, "heat", "submitting", 0, 4),
    StudyJobChanged(0.0, "heat", 0, "heat-0", 0, "submitted"),
    StudyJobChanged(1.0, "heat", 0, "heat-0", 0, "running", (), "71"),
    StudyChanged(1.0, "heat", "serving", 0, 4, 1.0, "connected"),
    StudyJobChanged(2.0, "heat", 1, "heat-1", 0, "submitted", (1, 2)),
    StudyClientChanged(2.0, "heat", 0, 1, "submitted", 1),
    StudyClientChanged(2.0, "heat", 0, 2, "submitted", 1),
    StudyClientChanged(2.0, "heat", 0, 3, "postponed"),
    StudyJobChanged(3.0, "heat", 1, "heat-1", 0, "running", (1, 2), "72"),
    StudyClientChanged(3.0, "heat", 0, 1, "completed", 1, "72", "exit status 0"),
    StudyClientChanged(3.0, "heat", 0, 2, "failed", 1, "72", "exit status 3"),
    StudyChanged(4.0, "heat", "serving", 0, 4, 3.5, "ping", 1, "", "server 7 is none of this study"),
)


def model_of(*records: Record) -> Model:
    model = Model()
    for record in (opened(), *records):
        model.apply(RTS, record)
    model.tick(WALL_S + 5.0)
    return model


async def page(app: TopApp, *keys: str) -> str:
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        app.draw()
        await pilot.pause()
        return screen_text(app)


def shown(model: Model, *keys: str) -> list[str]:
    app = TopApp(FakeSource(model), of_study=True, now=lambda: WALL_S + 5.0)
    return [line.rstrip() for line in asyncio.run(page(app, *keys)).splitlines()]


def test_the_view_tells_of_server_clients_and_jobs() -> None:
    lines = shown(model_of(*RECORDS))
    assert lines[0].startswith(" gspc-top  heat")
    assert lines[1].split() == ["u", "Study", "8", "Log"]
    assert lines[2] == " study heat is serving: server 7 is none of this study"
    assert lines[3] == " server 0 is running  job 71  last word: ping, 1.5 s ago"
    assert lines[4] == " 3 clients  · 1 postponed  ✓ 1 completed  ✗ 1 failed"
    assert lines[5] == " 2 of at most 4 jobs  0 restarts  1 refused connection"
    rows = [line.split() for line in lines[7:10]]
    assert rows[0][:5] == ["1", "72", "▶", "running", "2.0"]
    assert rows[0][6:] == ["clients", "1,", "2", "1", "completed,", "1", "failed"]
    assert rows[1][:2] == ["0", "71"]
    assert rows[2][:2] == ["·", "postponed"]


def test_enter_tells_all_that_is_known_of_a_job() -> None:
    text = "\n".join(shown(model_of(*RECORDS), "enter"))
    assert "client 2     failed: exit status 3" in text
    assert "gspc-launcher log --uid 1" in text


def test_the_log_and_the_alerts_tell_what_went_wrong() -> None:
    gone = StudyChanged(6.0, "heat", "restarting", 1, 4, 3.5, "ping", 1, "", "nothing was heard for 10 s")
    stale = StudyChanged(7.0, "heat", "submitting", 1, 4, 3.5, "ping", 1, "squeue: timed out")
    model = model_of(*RECORDS, gone, stale)
    assert [line.text for line in model.log] == [
        "the study is submitting, server 0",
        "the study is serving, server 0",
        "client 2 is failed: exit status 3",
        "a connection was refused: server 7 is none of this study",
        "the study is restarting, server 1: nothing was heard for 10 s",
        "the states may be old: squeue: timed out",
    ]
    assert [text for _, text in alerts(model_of(*RECORDS))] == ["heat: 1 client failed"]
    assert [text for _, text in alerts(model)] == [
        "heat: the states may be old: squeue: timed out",
        "heat: the server was replaced 1 time",
    ]


def test_a_look_for_scripts() -> None:
    model = model_of(*RECORDS)
    assert as_lines(model) == [
        "study heat is serving: server 7 is none of this study",
        "server 0, its last word was ping 1.5 s ago",
        "clients: 1 postponed, 1 completed, 1 failed",
        "2 of at most 4 jobs, 1 refused connection",
        "",
        "error: heat: 1 client failed",
    ]
    assert snapshot(model).studies[0].clients == {"postponed": 1, "completed": 1, "failed": 1}


def test_a_file_of_records_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(encode_record(record) + "\n" for record in (opened(), *RECORDS)))
    player = Player(path)
    assert player.of_study
    player.seek(3.0)
    assert player.model.rts.studies["heat"].by_state() == {"postponed": 1, "completed": 1, "failed": 1}
    player.seek(2.5)
    assert player.model.rts.studies["heat"].by_state() == {"postponed": 1, "submitted": 2}
    ReplaySource(player).player.close()


# The launcher of a study, and who asks it -------------------------------------------------------------------


async def served(world: World, directory: Path) -> None:
    """Serve at the loopback interface, and write the files that clients look for."""
    address = await world.nursery.start(world.server.run, 0)
    secrets = directory / SECRETS
    secrets.mkdir()
    write_http_file(secrets, HttpAccess(address, world.server.token))
    (secrets / "server.0.json").write_text(json.dumps({"token": FIRST.hex()}))


async def test_the_follower_takes_a_snapshot_and_what_happens_then(tmp_path: Path) -> None:
    async with open_world(tmp_path, interval_s=1000.0) as world:  # nobody is dead on a busy host
        await served(world, tmp_path)
        model = Model()
        follower = StudyFollower(StudyClient(tmp_path), model)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follower.run)
                await follower.up.wait()
                assert model.rts.studies["s"].changed == world.view.progress.changed
                assert not model.log
                await world.ask("POST /ping", token=FIRST)
                while not model.log:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                assert model.log[0].text == "the study is serving, server 0"
                nursery.cancel_scope.cancel()


async def test_commands_ask_the_launcher(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with open_world(tmp_path, interval_s=1000.0) as world:  # nobody is dead on a busy host
        await served(world, tmp_path)
        wanted = {"client_ids": [1, 2], "command": ["solve"]}
        assert (await world.ask("POST /jobs", wanted, token=FIRST))[0] == 202
        (tmp_path / "job.1.client.2.err").write_text("a warning\n")
        for call in (
            partial(status, study=tmp_path, jobs=True),
            partial(log, study=tmp_path, client=2, stream="err"),
            partial(cancel, 1, study=tmp_path),
            partial(cancel, 2, study=tmp_path),
        ):
            with trio.fail_after(60):
                await trio.to_thread.run_sync(call)
        said = capsys.readouterr().out.splitlines()
        assert said[0] == f"study s in {tmp_path} is serving"
        assert said[1].startswith("server 0 is running (UID 0, job 10), its last word was 'submit'")
        assert said[2:4] == ["clients: 2 queued", "2 of at most 3 jobs, 0 restarts, 0 refused connections"]
        assert said[4].split()[:5] == ["1", "11", "queued", "client", "1"]
        assert said[6:] == ["a warning", "client 1 is being cancelled", "client 2 is being cancelled"]
        with pytest.raises(CommandError, match="there is no client 9"):
            await trio.to_thread.run_sync(partial(log, study=tmp_path, client=9))
        with pytest.raises(CommandError, match="there is no state 'runing'"):
            await trio.to_thread.run_sync(partial(status, study=tmp_path, state="runing"))


def test_a_study_that_does_not_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(StudyUnreachable, match="no study runs in"):
        find_study(None, tmp_path)
    with pytest.raises(StudyUnreachable, match="there is no directory"):
        find_study(tmp_path / "nothing", tmp_path)
    (tmp_path / SECRETS).mkdir()
    with pytest.raises(StudyUnreachable, match="the launcher of this study has ended, or there is no study"):
        StudyClient(tmp_path).get("status")
    write_http_file(tmp_path / SECRETS, HttpAccess("http://127.0.0.1:1", "token"))
    with pytest.raises(StudyUnreachable, match=r"does not answer at http://127\.0\.0\.1:1"):
        StudyClient(tmp_path).get("status")
    # Somebody else may listen at this port of another host: he is told no token.
    write_http_file(tmp_path / SECRETS, HttpAccess("http://127.0.0.1:1", "token", "login-2"))
    with pytest.raises(StudyUnreachable, match="runs on the host login-2, which alone can reach it"):
        StudyClient(tmp_path).get("status")
    with subprocess.Popen(["true"]) as ended:
        pass
    for pid, words in ((os.getpid(), "does not answer at"), (ended.pid, "was killed")):
        access = HttpAccess("http://127.0.0.1:1", "token", os.uname().nodename, pid)
        write_http_file(tmp_path / SECRETS, access)
        with pytest.raises(StudyUnreachable, match=words):
            StudyClient(tmp_path).get("status")
    assert StudyRefuses(404, "x").status == 404
