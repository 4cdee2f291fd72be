from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.workflow.formats.layout import GAP_X, GAP_Y, layout_of

NAMES = "abcdefgh"
ARCS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20)


def test_a_cycle_goes_to_the_right_and_back() -> None:
    made = layout_of(dict.fromkeys("ab", (10, 5)), [("b", "a"), ("a", "b")], "b")
    right = 20 + GAP_X
    middle = made.middles["b"][1]
    assert made.middles == {"b": (10 + GAP_X / 2, middle), "a": (10 + GAP_X / 2 + right, middle)}
    assert made.ways[0] == [(20 + GAP_X / 2, middle - 2), (right + GAP_X / 2, middle - 2)]
    assert made.ways[1] == [(right + GAP_X / 2, middle + 2), (20 + GAP_X / 2, middle + 2)]
    assert (made.width, made.height) == (2 * right, middle + 5 + GAP_Y)


def test_an_arc_over_a_column_passes_what_is_there() -> None:
    sizes = dict.fromkeys("abc", (10, 5))
    made = layout_of(sizes, [("a", "b"), ("b", "c"), ("a", "c")], "a")
    (x, y), bend = made.middles["b"], made.ways[2][1]
    assert bend[0] == x
    assert abs(bend[1] - y) >= 5 + GAP_Y


@settings(max_examples=100)
@given(ARCS, st.lists(st.sampled_from(NAMES), max_size=3))
def test_nodes_are_apart_and_arcs_lead_from_side_to_side(
    arcs: list[tuple[str, str]], first: list[str]
) -> None:
    sizes = {name: (10.0 + 3 * number, 5.0 + number) for number, name in enumerate(NAMES)}
    made = layout_of(sizes, arcs, first)
    assert made == layout_of(sizes, arcs, first)
    for one, other in combinations(NAMES, 2):
        apart_x, apart_y = (abs(made.middles[one][axis] - made.middles[other][axis]) for axis in (0, 1))
        assert apart_x > sizes[one][0] + sizes[other][0] or apart_y > sizes[one][1] + sizes[other][1]
    for name, (x, y) in made.middles.items():
        assert sizes[name][0] < x < made.width - sizes[name][0]
        assert sizes[name][1] < y < made.height - sizes[name][1]
    for (source, target), way in zip(arcs, made.ways, strict=True):
        if source == target:
            assert way == [made.middles[source]]
            continue
        for (x, y), name in ((way[0], source), (way[-1], target)):
            assert abs(abs(x - made.middles[name][0]) - sizes[name][0]) < 1e-6
            assert abs(y - made.middles[name][1]) < sizes[name][1]
