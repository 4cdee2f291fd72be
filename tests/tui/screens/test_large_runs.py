"""A very large system: a million tasks, a hundred jobs, ten thousand resources."""

from __future__ import annotations

import asyncio

from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import JobChanged, TaskCounts
from gspc_trio.tui.app import VIEWS, TopApp
from gspc_trio.tui.model import RTS, Model
from gspc_trio.tui.once import as_lines, snapshot
from tests.tui.support import (
    FINISHED,
    READY,
    RUNNING,
    WALL_S,
    FakeSource,
    fold,
    grant,
    host,
    opened,
    screen_text,
    task,
)

JOBS, HOSTS, TASKS = 100, 3_334, 1_000_000


def large_run() -> Model:
    """Each job holds a core on some hosts, and most of its tasks are known by number only."""
    model = fold(Model(), RTS, [opened()])
    for number in range(HOSTS):
        fold(model, RTS, host(f"r{number}", f"h{number}", 2))
    for number in range(JOBS):
        job = f"j{number + 1}"
        where = [f"r{number * 30 + n}.core0" for n in range(30)]
        fold(model, RTS, [JobChanged(1.0, job, "running", "many")])
        fold(model, RTS, [grant(1.0, 100 * number + n, name, job=job) for n, name in enumerate(where)])
        counts = {TaskState.FINISHED: TASKS // JOBS, TaskState.READY: 5_000}
        fold(model, job, [opened(), TaskCounts(5.0, job, counts, 1e4, 1.0, ((4, 900), (5, 950)))])
        fold(model, job, [task(4.0, n, RUNNING, name, job=job) for n, name in enumerate(where)])
        model.connected.add(job)
    model.tick(WALL_S + 6)
    return model


def test_everything_is_counted_and_everything_can_be_looked_at() -> None:
    model = large_run()
    assert len(model.rts.resources) == 3 * HOSTS
    assert sum(job.counts[FINISHED] for job in model.jobs()) == TASKS
    assert sum(job.counts[READY] for job in model.jobs()) == 5_000 * JOBS
    assert model.cores_in_use == 30 * JOBS
    assert len(snapshot(model).jobs) == JOBS
    assert len(as_lines(model)) > HOSTS
    app = TopApp(FakeSource(model), now=lambda: WALL_S + 7)

    async def main() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            for kind in VIEWS:
                for key in (kind.KEY, "end", "pageup", "home"):
                    await pilot.press(key)
                await pilot.pause()
                assert "3000/6668 in use" in screen_text(app)

    asyncio.run(main())
