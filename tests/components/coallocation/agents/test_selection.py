"""COA-2: service and site for each part, the least that fits; against trying all."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.components.coallocation.agents.selection import at_steps, choose, lower
from gspc_trio.components.coallocation.agents.words import OptionLadder, PartNeed, SiteOffer

COUNTS = st.integers(1, 5)


def fits(needs: list[PartNeed], offers: list[SiteOffer]) -> bool:
    """Whether there is a site for each part: all are tried."""
    for sites in product(range(len(offers)), repeat=len(needs)):
        left = [offer.there["core"] for offer in offers]
        for need, site in zip(needs, sites, strict=True):
            left[site] -= need.count if need.contact in ("", offers[site].name) else 99
        if min(left) >= 0:
            return True
    return False


@settings(max_examples=150)
@given(
    st.lists(st.tuples(COUNTS, st.sampled_from(["", "", "s0", "s1"])), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["", "x", "y"])), min_size=1, max_size=3),
)
def test_a_choice_is_found_if_there_is_one(parts, sites):
    needs = [PartNeed(count=count, contact=contact) for count, contact in parts]
    offers = [
        SiteOffer((above, f"s{number}") if above else (f"s{number}",), {"core": count}, {"core": count // 2})
        for number, (count, above) in enumerate(sites)
    ]
    places = choose(needs, offers)
    assert isinstance(places, str) != fits(needs, offers)
    if not isinstance(places, str):
        left = {offer.path: offer.there["core"] for offer in offers}
        for part, need in enumerate(needs):
            left[places[part]] -= need.count
            assert need.contact in ("", places[part][-1])
        assert min(left.values()) >= 0


def test_what_is_free_comes_first_then_the_least_that_fits_and_one_service_for_all():
    big, small = (
        SiteOffer(("big",), {"core": 9}, {"core": 9}),
        SiteOffer(("small",), {"core": 3}, {"core": 3}),
    )
    full = SiteOffer(("full",), {"core": 2}, {"core": 0})
    assert choose([PartNeed(count=2)], [big, full, small]) == {0: ("small",)}
    assert choose([PartNeed(count=2), PartNeed(count=2)], [big, full, small]) == {0: ("small",), 1: ("big",)}
    below = [SiteOffer(("x", "p"), {"core": 2}, {"core": 2}), SiteOffer(("x", "q"), {"core": 2}, {"core": 2})]
    assert choose([PartNeed(count=2)] * 2, [big, small, *below]) == {0: ("x", "p"), 1: ("x", "q")}


def test_memory_and_features_are_looked_at():
    plain = SiteOffer(("a",), {"core": 1})
    rich = SiteOffer(("b",), {"core": 9}, memory_bytes=100, features=frozenset(["avx2"]))
    assert choose([PartNeed(features=frozenset(["avx2"]))], [plain, rich]) == {0: ("b",)}
    assert choose([PartNeed(memory_bytes=100)], [plain, rich]) == {0: ("b",)}
    assert choose([PartNeed(memory_bytes=101)], [plain, rich]) == (
        "no site has 1 of class core with 101 bytes; the largest has 9 of this class"
    )


def test_the_last_option_with_a_lower_value_goes_down():
    ladders = (OptionLadder(0, "count", (8, 4, 2)), OptionLadder(1, "resource_class", ("node", "core")))
    steps: tuple[int, ...] | None = (0, 0)
    seen = []
    while steps is not None:
        seen.append(steps)
        steps = lower(ladders, steps)
    assert seen == [(0, 0), (0, 1), (1, 1), (2, 1)]
    needs = at_steps([PartNeed(count=8), PartNeed("node")], ladders, (2, 1))
    assert needs == (PartNeed(count=2), PartNeed("core"))
