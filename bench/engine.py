"""Firings of the workflow engine alone: no tasks, no processes.

    python bench/engine.py [--json] [--small]

``engine.firings_per_s``     transitions that forward a token, through a chain of places, 100,000 tokens
``engine.computing_per_s``   transitions that call a function on the token
``engine.tasks_per_s``       ready, extracted and injected, with nobody between
"""

from __future__ import annotations

import gc
import time

from figures import Figures, options_parser

from gspc_trio.protocol.values import dumps, join, loads
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net

STEPS = 5


def increment(number: int) -> int:
    """Return the next number."""
    return number + 1


def forwarding() -> Net:
    """Return a chain of places with a transition from each to the next."""
    net = Net("forwarding")
    place = net.input("numbers")
    for step in range(STEPS):
        following = net.place(f"place {step}") if step + 1 < STEPS else net.output("moved")
        net.transition(f"step {step}", None, {"number": place}, following)
        place = following
    return net


def computing() -> Net:
    """Return a net of one inline transition."""
    net = Net("computing")
    net.transition("step", increment, {"number": net.input("numbers")}, net.output("done"), inline=True)
    return net


def tasks() -> Net:
    """Return a net of one task per token."""
    net = Net("tasks")
    net.transition("step", increment, {"number": net.input("numbers")}, net.output("done"))
    return net


def run(net: Net, tokens: int) -> float:
    """Return the seconds that the engine takes to come to rest, starting with so many tokens."""
    engine = WorkflowEngine(net, {"numbers": range(tokens)}, dumps=dumps, loads=loads, join=join)
    gc.collect()
    begun = time.perf_counter()
    while (task_id := engine.next()) is not None or engine.has_more:
        if task_id is not None:
            task = engine.extract(task_id)
            engine.inject(task_id, (task.arguments,))
    took_s = time.perf_counter() - begun
    (values,) = engine.outputs().values()
    assert len(values) == tokens
    return took_s


def main() -> None:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    tokens = 5_000 if options.small else 100_000
    figures = Figures(options.json)
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    runs = 1 if options.small else 5
    figures.add("engine.firings_per_s", tokens * STEPS / best(forwarding(), tokens, runs), "firings/s")
    figures.add("engine.computing_per_s", tokens / best(computing(), tokens, runs), "firings/s")
    figures.add("engine.tasks_per_s", tokens / best(tasks(), tokens, runs), "tasks/s")


def best(net: Net, tokens: int, runs: int) -> float:
    """Return the seconds of the fastest run: others on the machine only ever make it slower."""
    return min(run(net, tokens) for _ in range(runs))


if __name__ == "__main__":
    main()
