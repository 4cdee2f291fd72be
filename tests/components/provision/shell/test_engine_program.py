"""What the programs for running clusters answer, with a cluster that is a list."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.providers.task_engine import (
    REFUSED,
    EngineJob,
    EngineRequest,
    EngineSize,
)
from gspc_trio.components.provision.shell.engine_program import Commands, Refused, Unanswered


class ListedCluster:
    """A cluster of two nodes; see EngineCluster."""

    opened: ClassVar[list[str]] = []

    def __init__(self, address: str) -> None:
        if address == "nowhere":
            raise Refused("cannot connect to nowhere")
        self.opened.append(address)
        self.names: list[str] = []

    def submit(self, wanted: EngineRequest, told: bytes) -> None:
        assert msgspec.json.decode(told, type=EngineRequest) == wanted
        if wanted.nodes > 2:
            raise Refused("it has 2 nodes")
        self.names.append(wanted.name)

    def jobs(self, only: str) -> list[EngineJob]:
        return [EngineJob(name, BatchState.RUNNING) for name in self.names if only in ("", name)]

    def cancel(self, name: str) -> None:
        self.names.remove(name)

    def size(self) -> EngineSize:
        raise Unanswered("it has no node")

    def close(self) -> None:
        self.opened.append("closed")


def request(name: str, nodes: int = 1) -> str:
    return msgspec.json.encode(EngineRequest(name, nodes, 1, "script", "secret")).decode()


def test_commands_are_answered_by_one_connection():
    ListedCluster.opened.clear()
    commands = Commands(ListedCluster)
    assert commands.answer(("submit", "here"), request("a")) == (0, "a\n", "")
    assert commands.answer(("submit", "here"), request("b", 3)) == (REFUSED, "", "it has 2 nodes\n")
    listed = '{"name":"a","state":"running","reason":""}\n'
    assert commands.answer(("list", "here"), "") == (0, listed, "")
    assert commands.answer(("list", "here", "other"), "") == (0, "", "")
    assert commands.answer(("size", "here"), "") == (1, "", "it has no node\n")
    assert commands.answer(("cancel", "here", "a"), "") == (0, "", "")
    assert ListedCluster.opened == ["here"]


def test_after_an_error_of_the_library_and_for_another_address_it_connects_anew():
    ListedCluster.opened.clear()
    commands = Commands(ListedCluster)
    status, output, errors = commands.answer(("cancel", "here", "nothing"), "")
    assert (status, output) == (1, "")
    assert errors.startswith("ValueError: ")
    assert commands.answer(("list", "here"), "") == (0, "", "")
    assert commands.answer(("list", "there"), "") == (0, "", "")
    assert ListedCluster.opened == ["here", "closed", "here", "closed", "there"]
    assert commands.answer(("list", "nowhere"), "") == (REFUSED, "", "cannot connect to nowhere\n")
