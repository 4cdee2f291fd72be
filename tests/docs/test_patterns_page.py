"""The pictures on the page of patterns are those of the nets that are named before them."""

from __future__ import annotations

import re
from pathlib import Path

import gspc_trio
from gspc_trio.workflow.formats.drawing import drawing_of, mermaid_of

PAGE = Path(__file__).parents[2] / "docs" / "patterns.md"
PICTURE = re.compile(r"<!-- net: (.*) -->\n(?:\n```mermaid\n[^`]*```\n)?")


def double(number: int) -> int:
    return 2 * number


def add_up(number: int, total: int) -> tuple[int, int]:
    return total + number, total + number


def is_even(number: int) -> bool:
    return number % 2 == 0


def add(so_far: int, number: int) -> int:
    return so_far + number


def picture(found: re.Match[str]) -> str:
    names = {one.__name__: one for one in (double, add_up, is_even, add)}
    net = eval(found[1], {**{name: getattr(gspc_trio, name) for name in gspc_trio.__all__}, **names})
    return f"<!-- net: {found[1]} -->\n\n```mermaid\n{mermaid_of(drawing_of(net))}```\n"


def test_pictures_are_those_of_the_nets() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(PICTURE.findall(text)) == 6
    assert text == PICTURE.sub(picture, text)
