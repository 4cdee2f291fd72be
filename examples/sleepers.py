"""Tasks that only sleep: the smallest workflow file.

gspc-jobserver run examples/sleepers.py --set n=100 --set seconds=0.1
"""

import time
from collections.abc import Mapping

from gspc_trio import Workflow, farm


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def workflow(n: int = 100, seconds: float = 0.1) -> Workflow:
    """Sleep ``n`` times for so many seconds."""

    def report(outputs: Mapping[str, list[float]]) -> None:
        print(f"slept {sum(outputs['results']):.1f} s altogether")

    return Workflow(farm(sleep, name="sleepers"), {"items": [seconds] * n}, report)
