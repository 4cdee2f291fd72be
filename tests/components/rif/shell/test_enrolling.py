"""A process that enrols over a real socket: what it needs and gets, and what a ticket is not good for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from gspc_trio.components.provision.blocks import EnrolmentFile
from gspc_trio.components.provision.shell.enrolments import EnrolmentService
from gspc_trio.components.rif.shell.rif_process import BadOrder, enrol, find_order, unreadable
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.network import AuthenticationFailed, Network
from gspc_trio.protocol.plain import to_json
from tests.components.rts.shell.test_blocks import Side

TICKET, TOKEN = bytes(range(32)), bytes(range(32, 64))
PLACE = {"GSPC_NODE": "0", "GSPC_BATCH_ID": "17", "GSPC_RESTARTS": ""}


class Kept(Side):
    """A block whose one order is a text."""

    def order_for(self, node: int) -> str:
        return f"order {node}"

    def job_seen(self, job_id: str) -> None:
        assert job_id == "17"


@pytest.fixture
async def address(nursery: trio.Nursery) -> str:
    """Where a service is that has an order for the only node of the block ``b``."""
    enrolments = EnrolmentService(lambda _: "")
    enrolments.open(nursery)
    enrolments.open_block(Kept(), "b", 1, TICKET, "", 0)
    enrolments.hand_in("b", 0, 1, taken=False)
    network = Network(wire_codec, TOKEN)
    network.token_of = enrolments.token_of

    async def listen(task_status: trio.TaskStatus[str]) -> None:
        where = "ws://127.0.0.1:0"
        await network.listen(where, enrolments.serve, role="rts", name="rts", task_status=task_status)

    where: str = await nursery.start(listen)
    return where


def file_of(folder: Path, address: str, ticket: bytes = TICKET, block: str = "b") -> str:
    path = folder / "enrol"
    path.write_text(to_json(EnrolmentFile(address, block, ticket)))
    path.chmod(0o600)
    return str(path)


async def test_who_has_the_ticket_gets_the_order_once(address: str, tmp_path: Path):
    path = file_of(tmp_path, address)
    assert await enrol(path, PLACE) == "order 0"
    with pytest.raises(BadOrder, match="refused: node 0 of the block b has enrolled already"):
        await enrol(path, PLACE)


@pytest.mark.parametrize(("ticket", "block"), [(TOKEN, "b"), (bytes(32), "b"), (TICKET, "c")])
async def test_nobody_else_gets_it(address: str, tmp_path: Path, ticket: bytes, block: str):
    with pytest.raises(BadOrder, match="different tokens"):
        await enrol(file_of(tmp_path, address, ticket, block), PLACE)


@pytest.mark.parametrize("role", ["rif", "job", "control"])
async def test_a_ticket_is_good_for_nothing_else(address: str, role: str):
    network = Network(wire_codec, TICKET)
    with pytest.raises(AuthenticationFailed):
        async with network.connect(address, role=role, name="b", expect="rts"):
            pass


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({}, "the variable GSPC_NODE does not say which node of its block this is"),
        ({"GSPC_NODE": "x"}, "GSPC_NODE and GSPC_RESTARTS are numbers"),
        ({"GSPC_NODE": "-1"}, "GSPC_NODE and GSPC_RESTARTS are 0 or more"),
    ],
)
async def test_a_process_that_does_not_know_where_it_is_ends(
    tmp_path: Path, place: dict[str, str], message: str
):
    with pytest.raises(BadOrder, match=message):
        await enrol(file_of(tmp_path, "ws://127.0.0.1:9"), place)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path):
    path = tmp_path / "enrol"
    with pytest.raises(BadOrder, match=r"there is no file .*: the block is not wanted any more"):
        find_order(["--enrol", str(path)])
    path.write_text("{}")
    with pytest.raises(BadOrder, match="does not say how to enrol"):
        find_order(["--enrol", str(path)])
    path.chmod(0o622)
    with pytest.raises(BadOrder, match="others can write"):
        find_order(["--enrol", str(path)])
    with pytest.raises(BadOrder, match="a RIF knows one argument"):
        find_order(["--help"])


async def test_a_run_time_system_that_is_gone_is_looked_for_for_a_minute(
    tmp_path: Path, autojump_clock: trio.abc.Clock
):
    del autojump_clock
    with pytest.raises(BadOrder, match="no order within 60 s: nothing listens at"):
        await enrol(file_of(tmp_path, "ws://127.0.0.1:9"), PLACE)


def test_a_file_of_another_user_is_said_to_be_one() -> None:
    said = unreadable("/s/enrol", PermissionError(13, "Permission denied"))
    who = f"the block runs as another user ({os.getuid()})"
    assert (
        said
        == f"cannot read /s/enrol: Permission denied; only who has started the run-time system may: {who}"
    )
