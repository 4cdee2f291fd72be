"""One workflow under one system on hosts that run already; prints seconds. Started by :mod:`schedule.real`.

    real_client.py SYSTEM PLAN ADDRESS DATA FILE

``FILE`` has the tasks: ``[[id, dependencies, seconds, bytes], ...]``, dependencies first. A task waits for so
long, instead of computing, and returns so many bytes, which nobody can compress.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

HOSTS, STARTED_S = 3, 150.0
"""So many workers are waited for, for so long."""

Submit: TypeAlias = Callable[..., object]
Wait: TypeAlias = Callable[[list[object]], object]


def step(seconds: float, size_bytes: int, *inputs: bytes) -> bytes:
    """Take so long, with all inputs there, and return so many bytes."""
    read = sum(len(one) for one in inputs)
    time.sleep(seconds)
    return os.urandom(size_bytes) if read >= 0 else b""


@contextlib.contextmanager
def opened(system: str, plan: str, address: str, data: str) -> Iterator[tuple[Submit, Wait]]:
    """Yield what submits a task, and what waits for some."""
    if system == "dask":
        import distributed

        with distributed.Client(address) as client:
            client.wait_for_workers(HOSTS, timeout=STARTED_S)
            yield (
                lambda seconds, size_bytes, *inputs: client.submit(
                    step, seconds, size_bytes, *inputs, pure=False
                ),
                distributed.wait,
            )
    elif system == "ray":
        import ray

        ray.init(address=address, logging_level="error", log_to_driver=False)
        deadline_s = time.monotonic() + STARTED_S
        while sum(it["Alive"] for it in ray.nodes()) <= HOSTS:  # the head is one more
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"not all of {HOSTS} nodes are up after {STARTED_S:g} s")
            time.sleep(0.5)
        remote = ray.remote(num_cpus=1)(step)
        yield (
            lambda seconds, size_bytes, *inputs: remote.remote(seconds, size_bytes, *inputs),
            lambda some: ray.wait(some, num_returns=len(some), fetch_local=False),
        )
        ray.shutdown()
    else:
        from concurrent.futures import Future, wait

        from gspc_trio import Executor, TaskOptions

        stated = plan.endswith("+")
        with Executor(connection_file=address, iml=data, plan=plan.rstrip("+")) as executor:

            def submit(seconds: float, size_bytes: int, *inputs: object) -> object:
                if not stated:
                    return executor.submit(step, seconds, size_bytes, *inputs)
                options = TaskOptions(estimate_s=max(seconds, 0.001), output_bytes=size_bytes)
                return executor.with_options(options=options).submit(step, seconds, size_bytes, *inputs)

            yield submit, lambda some: wait([it for it in some if isinstance(it, Future)])


def main() -> None:
    """Run some tasks, so that all is there that is started late, then those of the file."""
    system, plan, address, data, file = sys.argv[1:]
    with open(file) as text:
        tasks = json.load(text)
    with opened(system, plan, address, data) as (submit, wait):
        wait([submit(0.2, 1000) for _ in range(6)])
        begun_s = time.monotonic()
        made: dict[int, object] = {}
        for task_id, dependencies, seconds, size_bytes in tasks:
            made[task_id] = submit(seconds, size_bytes, *(made[it] for it in dependencies))
        taken = {it for _, dependencies, *_ in tasks for it in dependencies}
        wait([it for task_id, it in made.items() if task_id not in taken])
        print(f"\nSECONDS {time.monotonic() - begun_s}", flush=True)


if __name__ == "__main__":
    main()
