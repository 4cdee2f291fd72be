"""One worker behind a slow link: tasks fetch a file, compute, and store a file that is as large.

    python bench/overlap.py [--json] [--small]

``overlap.share_of_ideal.S``  how near tasks whose stage-in takes S seconds come to the ideal: that the
                              longest of their phases is never interrupted (1: as good as can be)

A job server, a RIF of its own process and its worker do what they always do; between them is a link that lets
only so many bytes per second through, each way. Computing takes 0.5 s. The first task, which has to wait for
its compute process, is left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio
from figures import Figures, options_parser

from gspc_trio import JobSettings, Net
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.task import TaskState
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.records.facts import TaskChanged
from gspc_trio.records.lines import read_records

COMPUTE_S = 0.5
LINK_BYTES_PER_S = 4_000_000
STAGING_S = (0.05, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0)
TASKS = 12

LINK = """
import socket, sys, threading, time
target, bytes_per_s = int(sys.argv[1]), float(sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)

def forward(source, to):
    due_s = time.perf_counter()
    try:
        while data := source.recv(1 << 14):
            now = time.perf_counter()
            # It makes good for being woken late, up to a tenth of a second: a real link does not sleep.
            due_s = max(due_s, now - 0.1) + len(data) / bytes_per_s
            if due_s > now:
                time.sleep(due_s - now)
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except OSError:
        pass

while True:
    here, _ = listener.accept()
    there = socket.create_connection(("127.0.0.1", target))
    for one in (here, there):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            one.setsockopt(socket.SOL_SOCKET, option, 1 << 17)
    for pair in ((here, there), (there, here)):
        threading.Thread(target=forward, args=pair, daemon=True).start()
"""


class SlowNetwork(Network):
    """Reaches RIFs through a link that is slow.

    Args:
        network: whose token it has.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(wire_codec, network.token)
        self._fast = network
        self._links: dict[str, tuple[subprocess.Popen[str], str]] = {}

    @asynccontextmanager
    async def connect(self, address: str, *, role: str, name: str, expect: str) -> AsyncIterator[Peer]:
        """Connect for the time of a block."""
        told = {"role": role, "name": name, "expect": expect}
        if expect != "rif":
            opened = self._fast.connect(address, **told)
        else:
            opened = super().connect(self._link_to(address), **told)
        async with opened as peer:
            yield peer

    def _link_to(self, address: str) -> str:
        port = address.rpartition(":")[2]
        if port not in self._links:
            command = [sys.executable, "-c", LINK, port, str(LINK_BYTES_PER_S)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            self._links[port] = process, process.stdout.readline().strip()
        return f"ws://127.0.0.1:{self._links[port][1]}"

    def close(self) -> None:
        """End the links."""
        for process, _ in self._links.values():
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def slow_link_of(rts: RunTimeSystem) -> Iterator[None]:
    """Have jobs reach the RIFs of a run-time system through a slow link."""
    fast = rts.network
    rts.network = slow = SlowNetwork(fast)
    try:
        yield
    finally:
        rts.network = fast
        slow.close()


def compute(number: int) -> int:
    """Take the time, and leave a file as large as the one that was fetched."""
    time.sleep(COMPUTE_S)
    os.rename("fetched", "made")
    return number


async def run_tasks(rts: RunTimeSystem, folder: Path, staging_s: float, tasks: int) -> float:
    """Return how near so many tasks come to the ideal, when to fetch and to store takes so long."""
    (folder / "given").write_bytes(os.urandom(int(staging_s * LINK_BYTES_PER_S)))
    net = Net("overlap")
    net.transition(
        "compute",
        compute,
        {"number": net.input("numbers", range(tasks))},
        net.output("done"),
        stage_in={"fetched": "given"},
        stage_out={"made": "made{number}"},
    )
    records = folder / "records"
    settings = JobSettings(directory=str(folder))
    async with open_job(net, rts=rts, settings=settings, records_path=records) as job:
        await job.wait()
    ends_s = []
    for record in read_records(records.read_bytes().splitlines(keepends=True)):
        if not isinstance(record, TaskChanged):
            continue
        again = record.state is TaskState.READY and record.detail
        assert not again, f"task {record.task_id} was given out again: {record.detail}"
        if record.state is TaskState.FINISHED:
            ends_s.append(record.staged_s[3])
    assert len(ends_s) == tasks
    return (tasks - 1) * max(staging_s, COMPUTE_S) / (max(ends_s) - min(ends_s))


async def measure(figures: Figures, sizes: tuple[float, ...], tasks: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with open_rts(cores=1, publish=folder / "rts.json") as rts:
            report = await rts.bootstrap(("far",), "local", cores=1)
            assert not report.failed, report.failed
            await rts.teardown(("r1",))
            with slow_link_of(rts):
                for staging_s in sizes:
                    share = await run_tasks(rts, folder, staging_s, tasks)
                    figures.add(f"overlap.share_of_ideal.{staging_s:g}", share, "of 1")


def main() -> None:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    sizes, tasks = ((0.05, 0.3), 4) if options.small else (STAGING_S, TASKS)
    trio.run(measure, Figures(options.json), sizes, tasks)


if __name__ == "__main__":
    main()
