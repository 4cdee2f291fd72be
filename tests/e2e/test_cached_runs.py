"""A workflow that is run again computes only what has changed."""

from __future__ import annotations

import pytest

from tests.e2e.support import World

pytestmark = pytest.mark.process

FLOW = """
from gspc_trio import Net, Program, Workflow

def square(item):
    return item * item

def workflow(n: int = 3):
    net = Net("squares")
    items, squares = net.input("items"), net.output("squares")
    net.transition("square", square, items, squares)
    count = Program(["sh", "-c", "wc -c < text > size"])
    net.transition("count", count, net.place("once", [1]), net.output("counted"),
                   stage_in={"text": "text.txt"}, stage_out={"size": "size.txt"})
    net.transition("echo", Program(["echo", "hello"]), net.place("twice", [1]), net.output("said"))
    return Workflow(net, {"items": range(n)})
"""


def test_a_second_run_computes_what_is_new(world: World) -> None:
    flow, cache = world.workflow(FLOW), str(world.folder / "cache")
    text, size = world.folder / "text.txt", world.folder / "size.txt"
    text.write_text("four")
    first = world.run_json("jobserver", "run", flow, "--cores", "1", "--cache", cache)
    told = first["cache"]
    assert (told["found"], told["kept"], told["not_cacheable"]) == (0, 4, 1)
    assert told["reasons"][0][0].startswith("echo: what a program reads and writes is not known")
    text.write_text("fives")
    again = world.run("jobserver", "run", flow, "--cores", "1", "--cache", cache, "--set", "n=4")
    assert "; 3 from the cache, 2 kept, 1 not cacheable: echo: what a program reads" in again.stdout
    assert size.read_text().strip() == "5"
    listed = world.run_json("jobserver", "cache", "list", cache)
    assert sorted(entry["task"] for entry in listed) == ["count", "count", *["square"] * 4]
    assert world.run("jobserver", "cache", "clear", cache).stdout.startswith("6 results removed, ")
