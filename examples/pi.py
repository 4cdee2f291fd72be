"""Pi by random numbers: the area under a quarter of a circle, one random point in each of many thin strips.

gspc-jobserver run examples/pi.py --set samples=10000000 --set seed=7
"""

import math
import random
from collections.abc import Mapping
from itertools import pairwise

from gspc_trio import Net, Workflow, take


def sample(strips: tuple[int, int, int, int]) -> float:
    """Return what the strips from ``first`` up to ``last`` contribute to pi."""
    first, last, samples, seed = strips
    draw = random.Random(f"{seed} {first}").random
    heights = (math.sqrt(1 - ((strip + draw()) / samples) ** 2) for strip in range(first, last))
    return math.fsum(heights) * 4 / samples


def workflow(samples: int = 4_000_000, tasks: int = 40, seed: int = 1) -> Workflow:
    """Estimate pi from so many random points, the same for the same settings."""
    if not 1 <= tasks <= samples:
        raise ValueError(f"{samples} samples cannot be shared by {tasks} tasks; a task needs at least one")
    bounds = pairwise(samples * number // tasks for number in range(tasks + 1))

    net = Net("pi")
    strips, parts, pi = net.input("strips"), net.place("parts"), net.output("pi")
    net.transition("sample", sample, strips, parts)
    net.transition("add", math.fsum, take(parts, tasks), pi)  # fsum does not care about the order

    def report(outputs: Mapping[str, list[float]]) -> None:
        estimate = outputs["pi"][0]
        print(f"pi = {estimate:.12f}, error {abs(estimate - math.pi):.1e}")

    return Workflow(net, {"strips": [(first, last, samples, seed) for first, last in bounds]}, report)
