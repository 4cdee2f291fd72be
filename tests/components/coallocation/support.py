"""Random requests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gspc_trio.components.coallocation.tree import (
    DescribedJob,
    Multistage,
    NamedJob,
    Option,
    Request,
    SingleStage,
)

TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff")
    | st.sampled_from("\t\n\r \"'()<>&=,"),
    max_size=8,
)
NESTED = st.recursive(TEXTS, lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=4)
NAMES = st.sampled_from(["a", "b2", "climate.out", "x/y", "1", "a+b"])

_CHOICES: dict[str, tuple[st.SearchStrategy[Any], str]] = {
    "executable": (TEXTS.filter(bool).map(lambda text: (text,)), "program"),
    "arguments": (st.lists(TEXTS, min_size=1, max_size=3).map(tuple), "program"),
    "environment": (st.tuples(st.tuples(st.sampled_from(["A", "B"]), TEXTS)), "program"),
    "count": (st.sampled_from([("1",), ("4", "2", "1")]), "program"),
    "memory": (st.sampled_from([("1GiB",), ("64MiB", "1")]), "program"),
    "barrier_timeout": (st.just(("2.5",)), "stages"),
    "on_error": (st.sampled_from([("n",), ("3",)]), "stages"),
    "start": (st.just(("together",)), "job"),
}


@st.composite
def options(draw: st.DrawFn, kind: str, *, least: int = 0) -> tuple[Option, ...]:
    allowed = {
        "part": ("program",),
        "program": ("program", "job", "stages"),
        "job": ("job", "stages"),
        "stages": ("stages",),
    }[kind]
    names = [name for name, (_, at) in _CHOICES.items() if at in allowed]
    chosen = draw(st.lists(st.sampled_from(names), unique=True, min_size=least, max_size=3))
    return tuple(
        Option(name, draw(_CHOICES[name][0]), draw(st.sampled_from(["=", ">="])) if name == "memory" else "=")
        for name in chosen
    )


NAMED = st.builds(NamedJob, NAMES, options("program"))
DESCRIBED = st.builds(DescribedJob, options("program", least=1))
PARTS = st.builds(NamedJob, NAMES, options("part")) | st.builds(DescribedJob, options("part", least=1))
SINGLE = st.builds(SingleStage, st.lists(PARTS, min_size=1, max_size=3).map(tuple), options("job"))
REQUESTS: st.SearchStrategy[Request] = st.recursive(
    NAMED | DESCRIBED | SINGLE,
    lambda inner: st.builds(
        Multistage, st.lists(inner, min_size=1, max_size=4).map(tuple), options("stages")
    ),
    max_leaves=12,
)
