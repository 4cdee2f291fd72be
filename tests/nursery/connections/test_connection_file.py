"""The file that lets programs of one user, and nobody else, find a service (APP-1)."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.connection_file import (
    DIAL_S,
    ConnectionFileError,
    ConnectionInfo,
    claim_connection_file,
    default_connection_file,
    find_live_connection,
    read_connection_file,
    remove_connection_file,
    write_connection_file,
)
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.private_file import process_start
from tests.nursery.connections.support import TOKEN, WEBSOCKET, listening

INFO = ConnectionInfo.create("ws://127.0.0.1:1", TOKEN, "0.1.0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "gspc-trio" / "rts.json"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_is_read(path: Path) -> None:
    write_connection_file(path, INFO)
    assert read_connection_file(path) == INFO
    assert INFO.pid == os.getpid()


def test_it_is_for_its_owner_alone_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        write_connection_file(path, INFO)
    finally:
        os.umask(before)
    assert mode_of(path) == 0o600
    assert mode_of(path.parent) == 0o700
    assert os.listdir(path.parent) == ["rts.json"]


def test_the_token_is_not_shown() -> None:
    assert repr(TOKEN)[2:12] not in repr(INFO)


def test_it_replaces_an_older_one(path: Path) -> None:
    write_connection_file(path, INFO)
    newer = replace(INFO, address="ws://127.0.0.1:2", instance="abc")
    write_connection_file(path, newer)
    assert read_connection_file(path) == newer


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_is_refused_with_what_to_do(path: Path, mode: int) -> None:
    write_connection_file(path, INFO)
    path.chmod(mode)
    with pytest.raises(
        ConnectionFileError, match=rf"others can read .* \(mode {mode:04o}\).*chmod 600 {path}"
    ):
        read_connection_file(path)


def test_another_users_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_connection_file(path, INFO)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(
        ConnectionFileError, match=rf"{path} belongs to user {path.stat().st_uid}, not to you"
    ):
        read_connection_file(path)


def test_a_directory_that_others_can_write_to_is_refused(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o777)
    with pytest.raises(
        ConnectionFileError, match=rf"others can write to the directory {path.parent} .*chmod 700"
    ):
        write_connection_file(path, INFO)
    assert not path.exists()


def test_a_missing_file_says_so(path: Path) -> None:
    with pytest.raises(ConnectionFileError, match=f"there is no connection file {path}"):
        read_connection_file(path)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"address": 5}', "[" * 60_000, '{"token": "zz"}', "\x00\xff"],
    ids=range(9),
)
def test_another_file_is_refused(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ConnectionFileError, match="is not a connection file"):
        read_connection_file(path)
    with pytest.raises(ConnectionFileError, match="is not a connection file"):
        write_connection_file(path, INFO)
    assert path.read_text(encoding="latin-1") == text


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (tmp_path, pipe):
        with pytest.raises(ConnectionFileError, match=r"not a connection file|cannot read"):
            read_connection_file(path)


def test_only_ones_own_file_is_removed(path: Path) -> None:
    write_connection_file(path, INFO)
    remove_connection_file(path, replace(INFO, instance="older"))
    assert path.exists()
    remove_connection_file(path, INFO)
    assert not path.exists()
    remove_connection_file(path, INFO)


def test_where_it_is_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GSPC_CONNECTION_FILE", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_connection_file() == tmp_path / "gspc-trio" / "rts.json"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert default_connection_file() == Path(f"/tmp/gspc-trio-{os.getuid()}/rts.json")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_connection_file() == Path(f"/tmp/gspc-trio-{os.getuid()}/rts.json")
    monkeypatch.setenv("GSPC_CONNECTION_FILE", str(tmp_path / "other.json"))
    assert default_connection_file() == tmp_path / "other.json"


async def test_a_service_that_answers_is_alive(path: Path) -> None:
    async with listening(Network(wire_codec, TOKEN), WEBSOCKET) as address:
        info = ConnectionInfo.create(address, TOKEN, "0.1.0")
        write_connection_file(path, info)
        assert await find_live_connection(path) == info
    assert await find_live_connection(path) is None


async def test_of_services_that_start_at_once_one_gets_the_file(path: Path) -> None:
    answers: list[ConnectionInfo | None] = []

    async def start(instance: str) -> None:
        answers.append(await claim_connection_file(path, replace(info, instance=instance)))

    async with listening(Network(wire_codec, TOKEN), WEBSOCKET) as address:
        info = ConnectionInfo.create(address, TOKEN, "0.1.0")
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(start, str(number))
        written = read_connection_file(path)
    assert answers.count(None) == 1
    assert answers.count(written) == 4
    assert [name.name for name in path.parent.iterdir()] == [path.name]


async def test_a_directory_that_stays_locked_is_told(path: Path, autojump_clock: MockClock) -> None:
    began_s = autojump_clock.current_time()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(ConnectionFileError, match="locked"):
            await claim_connection_file(path, INFO)
    finally:
        os.close(descriptor)
    assert autojump_clock.current_time() - began_s > DIAL_S, (
        "whoever has it may ask first whether one answers"
    )
    assert await claim_connection_file(path, INFO) is None


async def test_without_a_file_nothing_is_alive(path: Path) -> None:
    assert await find_live_connection(path) is None


async def test_a_file_of_a_process_that_is_gone_is_stale(path: Path) -> None:
    async with listening(Network(wire_codec, TOKEN), WEBSOCKET) as address:
        finished = await trio.run_process(["sh", "-c", "echo $$"], capture_stdout=True)
        info = ConnectionInfo.create(address, TOKEN, "0.1.0")
        write_connection_file(path, replace(info, pid=int(finished.stdout)))
        assert await find_live_connection(path) is None


async def test_a_file_whose_process_number_is_used_again_is_stale(path: Path) -> None:
    async with listening(Network(wire_codec, TOKEN), WEBSOCKET) as address:
        info = ConnectionInfo.create(address, TOKEN, "0.1.0")
        write_connection_file(path, replace(info, process_started=info.process_started - 1))
        assert await find_live_connection(path) is None


async def test_an_unsafe_file_is_not_taken_for_a_stale_one(path: Path) -> None:
    write_connection_file(path, INFO)
    os.chmod(path, 0o644)
    with pytest.raises(ConnectionFileError, match="chmod 600"):
        await find_live_connection(path)


def test_a_process_that_has_ended_is_gone_though_its_parent_has_not_asked_how() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_start(child.pid) is None
    assert process_start(os.getpid())
