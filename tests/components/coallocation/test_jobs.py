from __future__ import annotations

import math

import pytest

from gspc_trio.components.coallocation.agents.selection import at_steps, lower
from gspc_trio.components.coallocation.jobs import CoPart, jobs_with_options
from gspc_trio.components.coallocation.language import parse_coallocation
from gspc_trio.components.coallocation.running import ladders_of, needs_of
from gspc_trio.components.coallocation.tree import RslError

NAMED = {
    "a": {"executable": "sh", "arguments": ["-c", "date"], "count": [2, 1], "environment": {"A": "1"}},
    "both": "+(a)(&(executable=b))",
    "waits": {"executable": "w", "wait": 1},
    "empty": {},
    "odd": {"executable": "x", "count": True},
    "three": 3,
    "stages": "*(a)",
}


def test_options_behind_a_name_come_before_its_own_and_those_before_inherited_ones() -> None:
    tree = parse_coallocation("*(on_error=2)(attempts=2)(a(attempts=3))(both(on_error=n))")
    a, both = jobs_with_options(tree, NAMED)
    part = CoPart(("sh", "-c", "date"), environment={"A": "1"}, count=(2, 1), order=("count",))
    assert (a.number, a.name, a.parts, a.attempts, a.on_error) == (1, "a", (part,), 3, 2)
    assert (both.name, both.parts, both.attempts) == ("both", (part, CoPart(("b",))), 2)
    assert both.on_error == math.inf


def test_the_last_option_with_a_lower_value_goes_one_down() -> None:
    tree = parse_coallocation("&(executable=a)(count=4 2 1)(class=gpu core)(features=(x y) z)")
    (job,) = jobs_with_options(tree, {})
    ladders, seen = ladders_of(job), []
    steps: tuple[int, ...] | None = (0,) * len(ladders)
    while steps is not None:
        (need,) = at_steps(needs_of(job, "/"), ladders, steps)
        seen.append((need.count, need.resource_class, need.features))
        steps = lower(ladders, steps)
    assert seen == [
        (4, "gpu", {"x", "y"}),
        (4, "gpu", {"z"}),
        (4, "core", {"z"}),
        (2, "core", {"z"}),
        (1, "core", {"z"}),
    ]


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("*(a)(both)(bot)", 12, "there is no job 'bot' (did you mean 'both'?)"),
        ("&(count=1)", 1, "this job has no executable"),
        ("+(both)", 3, "is a + itself"),
        ("+(waits)", 3, "job 'waits': wait is an option of"),
        ("*(both(count=1))", 8, "count is an option of"),
        ("empty", 1, "it has no options"),
        ("odd", 1, "True can be no value"),
        ("three", 1, "it is a table of options, or a text"),
        ("stages", 1, "its text begins with & or with +"),
        ("+(a)(&(executable=b)(memory=1GiB))", 1, "memory is that of the first part"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, column: int, said: str) -> None:
    with pytest.raises(RslError) as caught:
        jobs_with_options(parse_coallocation(text), NAMED)
    assert said in str(caught.value)
    assert caught.value.column == column
