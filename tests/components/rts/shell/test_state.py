"""What a run-time system notes for the next one."""

from __future__ import annotations

import os
import socket
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from gspc_trio.components.provision.blocks import SavedBlock
from gspc_trio.components.provision.strategy import RifOrder
from gspc_trio.components.rts.messages import RegisterJob
from gspc_trio.components.rts.shell.saved import SavedHost, SavedJob
from gspc_trio.components.rts.shell.service import open_rts_service
from gspc_trio.components.rts.shell.state_files import (
    NAMES_AHEAD,
    StateError,
    StateKeeper,
    open_state,
)
from gspc_trio.components.rts.state import Limits
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.private_file import process_start
from tests.components.rts.shell.support import RTS, FakeRifs
from tests.support import until

BOUND_S = 60.0


def move(folder: Path, to: Path) -> None:
    folder.rename(to)


async def follow(keeper: StateKeeper, folder: Path, lost: Path | None = None) -> None:
    """Let a run-time system run until its state is noted; its disk may be away for a while."""
    network = Network(wire_codec, bytes.fromhex(keeper.before.token))
    async with open_rts_service(
        network, listen=("ws://127.0.0.1:0",), strategies={}, prepare=keeper.restore
    ) as service:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.follow, service)
            await until((folder / "rts.json").exists)
            if lost is not None:
                move(folder, lost)
                await until(lambda: keeper._failed)
                move(lost, folder)
                await until(lambda: not keeper._failed)
            nursery.cancel_scope.cancel()


async def test_a_disk_that_takes_no_more_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    with open_state(folder) as keeper:
        await follow(keeper, folder, tmp_path / "elsewhere")
    assert [record.message for record in caplog.records if "cannot be written" in record.message]
    with open_state(folder) as keeper:
        assert keeper.before.port, "it was written when that could be"
        assert keeper.before.alive_s == 0.0, "it ended in good order"


def test_a_state_that_cannot_be_kept_at_all_is_refused_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    (folder / "new").mkdir()  # in the way of what is written
    with (
        pytest.raises(StateError, match=f"the state {folder} cannot be written: Is a directory"),
        open_state(folder),
    ):
        raise AssertionError("it was opened")


async def test_the_next_one_has_the_same_secret_and_a_higher_epoch(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with open_state(folder) as keeper:
        await follow(keeper, folder)
        first = keeper.state
    with open_state(folder) as keeper:
        assert (keeper.before.token, keeper.before.instance) == (first.token, first.instance)
        assert keeper.state.epoch > first.epoch
        assert keeper.before.jobs_named == 0, "names are not skipped after an orderly end"


async def test_names_given_out_in_the_last_moment_are_not_given_again(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with open_state(folder) as keeper:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, keeper, folder)
            await until((folder / "rts.json").exists)
            crashed = (folder / "rts.json").read_bytes()
    (folder / "rts.json").write_bytes(crashed)
    with open_state(folder) as keeper:
        assert keeper.before.jobs_named == keeper.before.rifs_named == NAMES_AHEAD


def test_a_process_of_another_program_is_no_rif() -> None:
    assert SavedHost("anna", "local", 1, {}, "r1", 1, 1).has_ended, "process 1 is something else"
    assert SavedHost("anna", "local", 1, {}, "r1", 1, 2**22 + 1).has_ended
    assert not SavedHost("anna", "ssh", 1, {}, "r1", 1, 1).has_ended, "nobody knows"


def test_a_job_server_has_ended_when_its_process_is_gone_or_another_one() -> None:
    started = process_start(os.getpid())
    assert started
    assert not SavedJob("j1", os.getpid(), started).has_ended
    assert SavedJob("j1", os.getpid(), started - 1).has_ended, "its number was given again"
    assert SavedJob("j1", 2**22 + 1, started).has_ended


async def test_job_servers_of_this_host_are_noted_but_not_those_that_may_be_resumed(tmp_path: Path) -> None:
    network = Network(wire_codec, bytes(32))
    here, pid = socket.gethostname(), os.getpid()
    wishes = [
        RegisterJob("plain", pid, here),
        RegisterJob("elsewhere", pid, "another-host"),
        RegisterJob("journaled", pid, here, grace_s=30.0),
        RegisterJob("of another space of processes", 2**22 + 1, here),
    ]
    with open_state(tmp_path / "state") as keeper:
        async with AsyncExitStack() as stack:
            listening = open_rts_service(network, listen=("memory:rts",), strategies={})
            service = await stack.enter_async_context(listening)
            for wish in wishes:
                connecting = network.connect("memory:rts", role="job", name=wish.name, expect="rts")
                peer = await stack.enter_async_context(connecting)
                await peer.call(wish)
            assert len(service.machine.jobs) == len(wishes)
            assert keeper._jobs(service) == (SavedJob("j1", pid, process_start(pid) or 0),)


class NeverUp:
    """A strategy whose RIFs take long."""

    async def run(self, order: RifOrder) -> str:
        del order
        await trio.sleep_forever()
        raise AssertionError("unreachable")


async def test_it_is_noted_whether_a_rif_has_been_up(tmp_path: Path) -> None:
    """One that has not awaits no run-time system."""
    folder, network = tmp_path / "state", Network(wire_codec, bytes(32))
    rifs = FakeRifs(network)
    with open_state(folder) as keeper, trio.fail_after(BOUND_S):
        async with open_rts_service(
            network,
            listen=("ws://127.0.0.1:0", RTS),
            strategies={"fake": rifs, "slow": NeverUp()},
        ) as service:
            async with trio.open_nursery() as nursery:
                await service.bootstrap(("anna",), "fake")
                nursery.start_soon(service.bootstrap, ("berta",), "slow")
                nursery.start_soon(keeper.follow, service)
                await until(lambda: len(keeper.state.hosts) == 2)
                nursery.cancel_scope.cancel()
        left = replace(keeper.state, alive_s=time.time())
    assert {host.host: host.up for host in left.hosts} == {"anna": True, "berta": False}
    options: Any = {"strategies": {}, "limits": Limits(grace_s=30.0)}
    options["prepare"] = StateKeeper(folder, left).restore
    async with open_rts_service(Network(wire_codec), listen=(RTS,), **options) as service:
        assert {rif.host: rif.fresh for rif in service.machine.rifs} == {"anna": False, "berta": True}


async def test_a_block_of_which_no_host_is_left_is_kept_no_longer(tmp_path: Path) -> None:
    blocks = [SavedBlock(name, 1, f"gspc-{name}", "17", "aa" * 32, "/folder") for name in ("there", "over")]
    host = SavedHost("there.0", "batch", 1, {}, "r1", 1, block="there", once=True)
    with open_state(tmp_path / "state") as keeper:
        left = replace(keeper.before, hosts=(host,), blocks=tuple(blocks), alive_s=time.time())
    options: Any = {"strategies": {}, "limits": Limits(grace_s=30.0)}
    options["prepare"] = StateKeeper(tmp_path / "state", left).restore
    async with open_rts_service(Network(wire_codec), listen=(RTS,), **options) as service:
        assert [saved.block for saved in service.saved_blocks()] == ["there"]
