"""Places by rank, in all four modes (ASP-7)."""

from __future__ import annotations

import pytest

from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.policies.location import Level, RankedHost, Target, UnknownRank, location, steal_order

HOSTS = {0: RankedHost("a", "r1.core0", ("r1.node",)), 2: RankedHost("b", "r2.core0", ("r2.node",))}


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


def test_a_rank_without_a_host_is_refused() -> None:
    with pytest.raises(UnknownRank, match="no host with workers has the rank 1; there are: 0, 2"):
        location(1, Target.SOFT, Level.NODE, HOSTS)


def test_an_idle_worker_steals_what_has_no_place_then_what_prefers_its_host_and_nothing_hard() -> None:
    def at(target: Target, level: Level) -> Shape:
        return Shape((location(2, target, level, HOSTS),))

    places = [at(target, level) for target in Target for level in Level]
    waiting = [*places, CORE, Shape((Requirement(),) * 2)]
    assert [steal_order(shape, "r2.core3") for shape in waiting] == [None, None, 1, 1, 0, None]
    assert [steal_order(shape, "r22.core3") for shape in waiting] == [None, None, 2, 2, 0, None]
