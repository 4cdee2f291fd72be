"""Turns of file transfers and file operations: all hosts of a site count together, and all sites (SWF-8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from gspc_trio.components.provision.messages import FileMove, TurnBegins, TurnOver, WantTurn
from gspc_trio.components.rts.shell import site_turns
from gspc_trio.components.rts.shell.site_turns import SiteTurns
from gspc_trio.components.rts.state import ManagedRif
from gspc_trio.nursery.connections.rpc import Peer


class Host:
    """A connected host: it keeps which of its turns have begun."""

    def __init__(self, turns: SiteTurns, block: str, options: Mapping[str, str] | None = None) -> None:
        self.turns, self.begun, self.dropped = turns, list[int](), ""
        self.rif = ManagedRif("r1", f"{block}.0", "fake", 1, dict(options or {}), block=block)

    @property
    def peer(self) -> Peer:
        return cast("Peer", cast("Any", self))

    def post(self, said: TurnBegins) -> None:
        self.begun.append(said.number)

    def want(self, *numbers: int, move: FileMove = FileMove.TRANSFER, begun: bool = False) -> None:
        for number in numbers:
            self.turns.want(self.peer, self.rif, WantTurn(number, move, begun))
        self.turns.gate.check()

    def over(self, number: int) -> None:
        self.turns.over(self.peer, TurnOver(number))
        self.turns.gate.check()


OF_SITE = {"host_file_transfers": "2"}


def test_the_hosts_of_a_site_count_together_and_so_do_all_sites() -> None:
    turns = SiteTurns({"file_transfers": 3})
    first, second = Host(turns, "hpc/b1", OF_SITE), Host(turns, "hpc/b2", OF_SITE)
    other = Host(turns, "lab/b1")
    first.want(1, 2)
    second.want(1)
    other.want(1, 2)
    assert (first.begun, second.begun, other.begun) == ([1, 2], [], [1])
    assert turns.gate.uses("hpc")["host_file_transfers"] == (2, 2)
    assert turns.gate.uses()["file_transfers"] == (3, 3)
    second.want(2, 3, move=FileMove.OPERATION)
    assert second.begun == [2, 3], "operations have throttles of their own"
    first.over(1)
    assert (second.begun, other.begun) == ([2, 3], [1, 2]), "sites take turns"
    other.over(2)
    other.over(2)
    assert second.begun == [2, 3, 1]
    other.over(1)
    assert turns.gate.uses()["file_transfers"] == (2, 3)


@pytest.mark.parametrize("submit", ["", "_submit"])
@pytest.mark.parametrize("move", list(FileMove))
@pytest.mark.parametrize("host", ["", "host_"])
def test_each_throttle_holds(host: str, move: FileMove, submit: str) -> None:
    name = f"{host}{move}{submit}"
    turns = SiteTurns({} if host else {name: 1})
    options = {name: "1"} if host else {}
    hosts = [Host(turns, f"hpc/b{number}", options) for number in (1, 2)]
    for one in hosts:
        one.want(1, move=move)
    assert [one.begun for one in hosts] == [[1], []]
    hosts[0].over(1)
    assert [one.begun for one in hosts] == [[1], [1]]


def test_who_is_gone_frees_its_turns_and_tells_of_them_when_it_is_back() -> None:
    turns = SiteTurns({"file_transfers": 1})
    first, second = Host(turns, "hpc/b1"), Host(turns, "hpc/b2")
    first.want(1, 2)
    turns.gone(first.peer)
    second.want(1)
    assert (first.begun, second.begun) == ([1], [1])
    back = Host(turns, "hpc/b1")
    back.want(1, begun=True)
    back.want(2)
    assert turns.gate.uses()["file_transfers"] == (2, 1), "it moves its file, whatever is allowed now"
    second.over(1)
    assert back.begun == []
    back.over(1)
    assert back.begun == [2]


def test_hosts_of_no_site_are_of_one_if_they_see_the_same_directory() -> None:
    turns, options = SiteTurns({}), {"site_directory": "/s", "file_transfers": "1"}
    first, second = Host(turns, "night", options), Host(turns, "day", options)
    first.want(1)
    second.want(1)
    assert (first.begun, second.begun) == ([1], [])
    assert turns.gate.uses("/s")["host_file_transfers"] == (1, 1)


def test_a_turn_is_wanted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    offences: list[str] = []
    monkeypatch.setattr(site_turns, "drop_offender", lambda _, why: offences.append(why))
    host = Host(SiteTurns({}), "hpc/b1")
    host.want(1, 1)
    assert offences == ["it wants turn 1 twice, or more than 65536 at a time"]
