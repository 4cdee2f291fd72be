"""Places by rank, in all four modes (ASP-7)."""

from __future__ import annotations

import pytest

from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.policies.location import (
    Level,
    RankedWorker,
    Target,
    UnknownRank,
    location,
    rank_of_name,
    rank_workers,
    steal_order,
)

HOSTS = rank_workers(
    {5: "b", 0: "a", 3: "empty"},
    {
        "a": (["r1.core0", "r1.core1"], ["r1.node"]),
        "b": (["r2.core0"], ["r2.node"]),
        "without": (["r3.core0"], ["r3.node"]),
    },
)


def test_each_worker_has_a_rank_host_by_host() -> None:
    assert {
        0: RankedWorker("a", 0, 0, "r1.core0", ("r1.node",)),
        1: RankedWorker("a", 0, 1, "r1.core1", ("r1.node",)),
        2: RankedWorker("b", 5, 0, "r2.core0", ("r2.node",)),
    } == HOSTS


def test_a_name_has_the_worker_that_was_set_or_else_the_one_of_its_hash() -> None:
    assert [rank_of_name("x", 0, number, HOSTS) for number in (0, 1)] == [0, 1]
    assert rank_of_name("x", 5, 0, HOSTS) == 2
    by_hash = {rank_of_name(f"file{index}", 0, -1, HOSTS) for index in range(20)}
    assert by_hash == {0, 1}, "the names are shared out"
    assert rank_of_name("file", 0, 9, HOSTS) == rank_of_name("file", 0, -1, HOSTS), "that one has gone"
    with pytest.raises(
        UnknownRank, match="'x' lies on the memory server of rank 3, whose host has no workers"
    ):
        rank_of_name("x", 3, -1, HOSTS)


@pytest.mark.parametrize(
    ("target", "level", "expected"),
    [
        (Target.HARD, Level.RANK, Requirement("core", ("r2.core0",), True)),
        (Target.HARD, Level.NODE, Requirement("core", ("r2.node",), True)),
        (Target.SOFT, Level.RANK, Requirement("core", ("r2.core0", "r2.node"), False)),
        (Target.SOFT, Level.NODE, Requirement("core", ("r2.node",), False)),
    ],
)
def test_each_mode_names_its_place(target: Target, level: Level, expected: Requirement) -> None:
    assert location(2, target, level, HOSTS) == expected


def test_a_soft_place_is_waited_for_as_long_as_it_is_worth() -> None:
    place = location(2, Target.SOFT, Level.NODE, HOSTS, patience_s=3.0)
    assert place == Requirement("core", ("r2.node",), patience_s=3.0)


@pytest.mark.parametrize("rank", range(3))
def test_hard_and_soft_ranks_name_each_worker(rank: int) -> None:
    hard = location(rank, Target.HARD, Level.RANK, HOSTS)
    assert hard.preferences == (HOSTS[rank].worker,)
    assert location(rank, Target.SOFT, Level.RANK, HOSTS).preferences == (
        *hard.preferences,
        *HOSTS[rank].node,
    )


def test_a_rank_without_a_worker_is_refused() -> None:
    with pytest.raises(UnknownRank, match="no worker has the rank 3; there are: 0 to 2"):
        location(3, Target.SOFT, Level.NODE, HOSTS)
    with pytest.raises(UnknownRank, match="no worker has the rank 0; there are: none"):
        location(0, Target.SOFT, Level.NODE, {})


def test_an_idle_worker_steals_what_has_no_place_then_what_prefers_its_host_and_nothing_hard() -> None:
    def at(target: Target, level: Level) -> Shape:
        return Shape((location(2, target, level, HOSTS),))

    places = [at(target, level) for target in Target for level in Level]
    waiting = [*places, CORE, Shape((Requirement(),) * 2)]
    assert [steal_order(shape, "r2.core3") for shape in waiting] == [None, None, 1, 1, 0, None]
    assert [steal_order(shape, "r22.core3") for shape in waiting] == [None, None, 2, 2, 0, None]
