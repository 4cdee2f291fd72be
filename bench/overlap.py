"""One worker whose tasks take the same time to fetch data, to compute and to store data, overlapped or not.

    python bench/overlap.py [--json] [--small]

``overlap.speedup``  tasks per second with overlap, over those of tasks that may not be overlapped
``overlap.lanes``    how many of the three lanes were busy on average, by what the records tell of each task

Both ways take turns; the figures are medians. Data comes and goes over a link that lets only so many bytes
per second through.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from figures import Figures, options_parser

from gspc_trio.components.compute import open_process_backend
from gspc_trio.components.worker import JobCode, WorkerShell
from gspc_trio.core import work
from gspc_trio.core.code import CodeEntry
from gspc_trio.core.exchange import Finished, OpenJob, Submission, Submit
from gspc_trio.core.ids import JobId
from gspc_trio.core.resources import Resource
from gspc_trio.core.rif_events import AtWorker
from gspc_trio.core.task import Outcome, TaskOptions
from gspc_trio.core.worker import Worker
from gspc_trio.nursery.drive import Inbox, drive
from gspc_trio.protocol.code import encode_entry
from gspc_trio.protocol.values import dumps

PHASE_S = 0.05
BYTES = 1 << 20
CORE = Resource("r1.core0", "core")
STAGED = TaskOptions(stage_in=True, stage_out=True)
ALONE = TaskOptions(stage_in=True, stage_out=True, may_rerun=False)

LINK = """
import socket, sys, time
size, seconds = int(sys.argv[1]), float(sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
import threading
def serve(connection):
    piece = size // 16
    while request := connection.recv(1):
        begun = time.perf_counter()
        for number in range(1, 17):
            if request == b"g":
                connection.sendall(bytes(piece))
            else:
                left = piece
                while left:
                    left -= len(connection.recv(min(left, 1 << 16)))
            time.sleep(max(0.0, begun + seconds * number / 16 - time.perf_counter()))
        if request == b"p":
            connection.sendall(b".")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def spin(seconds: float) -> None:
    """Compute for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class LinkStaging:
    """Fetches and stores over the link, a connection for each direction."""

    def __init__(self, fetching: trio.SocketStream, storing: trio.SocketStream) -> None:
        self.fetching = fetching
        self.storing = storing

    async def stage_in(self, resource: Resource, job: JobId, submission: Submission) -> None:
        """Fetch."""
        del resource, job, submission
        await self.fetching.send_all(b"g")
        left = BYTES
        while left:
            left -= len(await self.fetching.receive_some(left))

    async def stage_out(
        self, resource: Resource, job: JobId, submission: Submission, outcome: Outcome
    ) -> None:
        """Store."""
        del resource, job, submission, outcome
        await self.storing.send_all(b"p" + bytes(BYTES))
        await self.storing.receive_some(1)


@asynccontextmanager
async def open_link() -> AsyncIterator[LinkStaging]:
    """Run the link in a process of its own."""
    command = [sys.executable, "-c", LINK, str(BYTES), str(PHASE_S)]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        port = int(await process.stdout.receive_some(100))
        async with await trio.open_tcp_stream("127.0.0.1", port) as fetching:
            async with await trio.open_tcp_stream("127.0.0.1", port) as storing:
                yield LinkStaging(fetching, storing)
    finally:
        process.kill()
        await process.wait()
        await process.stdout.aclose()


async def run_tasks(tasks: int, options: TaskOptions) -> tuple[float, float]:
    """Return how long a worker takes for so many tasks, and how many lanes were busy on average meanwhile."""
    inbox: Inbox[object] = Inbox()
    finished: list[Outcome] = []
    over = trio.Event()
    machine = Worker(CORE)

    def put(event: AtWorker) -> None:
        inbox.put(event.event)

    async with open_process_backend() as backend, open_link() as staging, trio.open_nursery() as nursery:
        job = JobCode(OpenJob("j1"), {1: encode_entry(CodeEntry(spin))}, staging=staging)
        shell = WorkerShell(CORE, {"j1": job}, backend, put, nursery)

        def perform(action: object) -> None:
            if isinstance(action, Finished):
                finished.extend(shell.reported(action).outcomes)
                assert all(not outcome.error for outcome in action.outcomes), action
                if len(finished) in (1, tasks + 1):
                    over.set()
            elif isinstance(action, work.Compute | work.StageIn | work.StageOut | work.Retract):
                shell.perform(action)

        def submit(first: int, count: int) -> None:
            arguments = (dumps(PHASE_S),)
            new = tuple(Submission(first + n, 1, 1, arguments, options) for n in range(count))
            inbox.put(work.Assign(Submit("j1", (1, 1), (CORE.resource_id,), new)))

        nursery.start_soon(drive, machine, inbox, perform)
        submit(1, 1)  # its compute process starts
        await over.wait()
        over = trio.Event()
        begun = time.perf_counter()
        submit(2, tasks)
        await over.wait()
        taken_s = time.perf_counter() - begun
        await shell.aclose()
        nursery.cancel_scope.cancel()
    return taken_s, lanes_of(finished[1:])


def lanes_of(outcomes: list[Outcome]) -> float:
    """Return how many of stage-in, compute and stage-out were going on on average."""
    busy_s = 0.0
    for outcome in outcomes:
        in_begin_s, in_end_s, out_begin_s, out_end_s = outcome.staged_s
        assert in_begin_s < in_end_s <= outcome.started_s <= out_begin_s < out_end_s, outcome.staged_s
        busy_s += (in_end_s - in_begin_s) + outcome.duration_s + (out_end_s - out_begin_s)
    return busy_s / (outcomes[-1].staged_s[3] - outcomes[0].staged_s[0])


async def measure(figures: Figures, rounds: int, tasks: int) -> None:
    """Measure and print."""
    speedups, lanes = [], []
    for _ in range(rounds):
        alone_s, _ = await run_tasks(tasks, ALONE)
        overlapped_s, busy = await run_tasks(tasks, STAGED)
        speedups.append(alone_s / overlapped_s)
        lanes.append(busy)
    figures.add("overlap.speedup", statistics.median(speedups), "x")
    figures.add("overlap.lanes", statistics.median(lanes), "of 3")


def main() -> None:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    trio.run(measure, Figures(options.json), *((1, 6) if options.small else (3, 80)))


if __name__ == "__main__":
    main()
