"""Workflows in a program of your own, beside whatever else it does under trio.

python examples/embedded.py
"""

import math
from collections.abc import Callable, Iterable

import trio

from gspc_trio import JobFailed, RunTimeSystem, farm, open_job, open_rts


async def apply(rts: RunTimeSystem, function: Callable[..., float], items: Iterable[float]) -> list[float]:
    """Return the function of each item, in the order in which they come."""
    async with open_job(farm(function), rts=rts, values={"items": list(items)}) as job:
        result = await job.wait()
    return result.outputs["results"]


async def main() -> None:
    async with open_rts() as rts:  # one run-time system for many jobs
        print("factorials:", sorted(await apply(rts, math.factorial, range(10))))

        try:
            await apply(rts, math.sqrt, [4, -1])
        except JobFailed as failed:
            print(failed)

        async def show_sum(function: Callable[[float], float]) -> None:
            print(f"sum of {function.__name__}: {math.fsum(await apply(rts, function, range(100))):.6f}")

        async with trio.open_nursery() as nursery:  # two jobs at a time share the cores
            nursery.start_soon(show_sum, math.sin)
            nursery.start_soon(show_sum, math.cos)
    print("everything is taken down")


if __name__ == "__main__":
    trio.run(main)
