"""What monitoring costs: the sampler of a host, and the store.

    python bench/monitor.py [--json] [--small]

``monitor.core_share``  part of a core that the sampler of this host takes: CPU time of the process per second
``store.rows_per_s``    frames of hosts with all metrics of this one, written in transactions of 1,000
``store.row_bytes``     room that such a frame takes in the file
``store.query_s``       what a job read and wrote in an hour: 16 tasks at a time on each of 5 hosts, and as
                        many of another job beside it
``store.view_s``        the same as view 9 of gspc-top and the report tell it, with calls, steps and events
``store.nodes_query_s``  mean of each metric of a host by minute in an hour of 100 hosts
``monitor.delay_s``     the longest time from the end of a frame until it is in the store: 1,000 simulated
                        hosts tell at once what they and 16 tasks each did in it, 5 frames
``monitor.w1_ratio``    CPU time of a no-op task of many (W1), without ``counts`` over that with it: median of
                        15 pairs; how far these are apart is told on standard error
"""

from __future__ import annotations

import logging
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec
import trio
from cost import bulk_us, warm_up
from figures import Figures, options_parser

from gspc_trio import Executor, RunTimeSystem, open_rts
from gspc_trio.components.monitor.io_frames import IoFrame, IoTold
from gspc_trio.components.monitor.messages import HostHardware, MonitorTold, NodeFrame
from gspc_trio.components.monitor.readings import LEVELS
from gspc_trio.components.monitor.reports import GetIo
from gspc_trio.components.monitor.shell.collector import open_collector
from gspc_trio.components.monitor.shell.reports import read_io
from gspc_trio.components.monitor.shell.sampling import sample
from gspc_trio.components.monitor.shell.store import STORE_FILE, Store, query
from gspc_trio.components.monitor.tables import Row
from gspc_trio.compute.io.area import CALLS, COUNTS
from gspc_trio.nursery.connections.rpc import Peer

HOSTS = 100
TASKS = 16
FRAMES = 720
PAIRS = 15
encode = msgspec.msgpack.encode
NODES_DECODER = msgspec.msgpack.Decoder(MonitorTold)
IO_DECODER = msgspec.msgpack.Decoder(IoTold)


async def sampled(for_s: float) -> tuple[float, list[NodeFrame]]:
    """Sample this host; return the part of a core that it took, and the frames."""
    told: list[MonitorTold] = []
    begin_s, begin = time.process_time(), time.monotonic()
    with trio.move_on_after(for_s):
        await sample(told.append)
    share = (time.process_time() - begin_s) / (time.monotonic() - begin)
    return share, [frame for one in told for frame in one.nodes]


def stored(folder: Path, frame: NodeFrame, frames: int) -> float:
    """Store frames like this one of many hosts; return how many in a second."""
    counts, levels = frame.counts, frame.levels
    store = Store(folder, 1 << 32, wall=float)
    taken_s = 0.0
    waiting: list[Row] = []
    for number in range(frames):
        for host in range(HOSTS):
            more = 1 + (7 * host + number) % 101 / 1000  # what is 0 on one host mostly is 0 on others, too
            other = {name: value * more for name, value in levels.items()}
            other |= {name: round(value * more) for name, value in counts.items()}
            waiting.append(Row(5 * number, (f"host{host}",), frame.covered_s, other))
        if len(waiting) >= 1000 or number == frames - 1:
            begin_s = time.perf_counter()
            store.write({"nodes": waiting})
            taken_s += time.perf_counter() - begin_s
            waiting = []
    store.close()
    return frames * HOSTS / taken_s


JOB_HOSTS = 10
"""Hosts of an hour of two jobs; every second one is of one of them."""


def job_hour(folder: Path, times: int, frames: int) -> dict[str, float]:
    """Return how long it takes to ask what a job read and wrote in an hour, in two ways."""
    store = Store(folder, 1 << 32, wall=float)
    amounts = dict.fromkeys((*COUNTS, *CALLS), 7)
    for number in range(frames):
        keys = [
            (f"host{host}", f"j{1 + host % 2}", number // 12 * 100 + task, 1)
            for host in range(JOB_HOSTS)
            for task in range(TASKS)
        ]
        store.write({"io": [Row(5 * number, key, 5.0, amounts) for key in keys]})
    store.close()
    sums = ", ".join(f"sum({name})" for name in amounts)
    asked: dict[str, Callable[[], object]] = {
        "store.query_s": lambda: query(folder, f"SELECT {sums} FROM io WHERE job = 'j1'"),
        "store.view_s": lambda: read_io(folder, GetIo("job", "j1", 5 * frames), 5.0 * frames + 5),
    }
    found: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(times):
        for name, ask in asked.items():
            begin_s = time.perf_counter()
            ask()
            found[name].append(time.perf_counter() - begin_s)
    return {name: statistics.median(one) for name, one in found.items()}


class _Rif:
    """A connection to a simulated host."""

    def post(self, message: object) -> None:
        """Take what it is told."""

    def drop(self, reason: str) -> None:
        """It has told nonsense."""
        raise SystemExit(reason)


async def delay_s(folder: Path, frame: NodeFrame, hosts: int, frames: int) -> float:
    """Let hosts tell frames as they end, on this clock; return how late the last row was in the store."""
    rif, hardware = cast(Peer, _Rif()), HostHardware(tuple(range(16)), 16, 1)
    amounts = {name: 100 + number for number, name in enumerate((*COUNTS, *CALLS[:14]))}
    longest_s = 0.0

    def stored() -> int:
        sql = "SELECT (SELECT count(*) FROM io_frames WHERE begin_s = ?1)"
        sql += " + (SELECT count(*) FROM nodes_frames WHERE begin_s = ?1)"
        return cast(int, query(folder, sql, (begin_s,)).rows[0][0])

    def wait_for(rows: int) -> None:
        while stored() < rows:
            time.sleep(0.05)

    async with open_collector(folder, 1 << 31, "watch") as collector:
        for host in range(hosts):
            collector.heard(rif, f"host{host}", MonitorTold(hardware))
        for number in range(frames):
            begin_s = frame.begin_s + 5 * number
            node = NodeFrame(begin_s, 5.0, frame.counts, frame.levels)
            ended = time.monotonic()
            for host in range(hosts):
                tasks = tuple(
                    IoFrame(begin_s, "j1", f"r{host}.core{core}", 16 * host + core, 1, 5.0, amounts)
                    for core in range(TASKS)
                )
                told = (encode(MonitorTold(nodes=(node,))), encode(IoTold(tasks)))
                collector.heard(rif, f"host{host}", NODES_DECODER.decode(told[0]))
                collector.heard_io(rif, f"host{host}", IO_DECODER.decode(told[1]))
                if host % 20 == 0:  # others are read from meanwhile
                    await trio.lowlevel.checkpoint()
            await trio.to_thread.run_sync(wait_for, hosts * (1 + TASKS))
            longest_s = max(longest_s, time.monotonic() - ended)
            await trio.sleep(0.5)
    return longest_s


@contextmanager
def system(folder: Path, io: str) -> Iterator[RunTimeSystem]:
    """A run-time system in a thread of its own, whose hosts are measured."""
    opened: list[tuple[RunTimeSystem, trio.lowlevel.TrioToken]] = []
    is_open, stop = threading.Event(), trio.Event()

    async def main() -> None:
        async with open_rts(cores=2, monitor=folder / io, io=io) as rts:
            opened.append((rts, trio.lowlevel.current_trio_token()))
            is_open.set()
            await stop.wait()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    is_open.wait()
    rts, token = opened[0]
    try:
        yield rts
    finally:
        token.run_sync_soon(stop.set)
        thread.join()


def w1_ratios(folder: Path, pairs: int, turns: int, tasks: int) -> list[float]:
    """Return the ratio of each pair, whose sides take turns.

    All of it is on one CPU: on two, threads that wait for each other take up to half more CPU time, and how
    much is another thing in each run.
    """
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(usable)})
    ratios = []
    try:
        with (
            system(folder, "counts") as first,
            system(folder, "off") as second,
            Executor(rts=first) as counted,
            Executor(rts=second) as alone,
        ):
            warm_up(counted)
            warm_up(alone)
            for pair in range(pairs):
                spent_us = {counted: 0.0, alone: 0.0}
                for turn in range(turns):
                    for executor in (counted, alone) if (pair + turn) % 2 else (alone, counted):
                        spent_us[executor] += bulk_us(executor, tasks)
                ratios.append(spent_us[alone] / spent_us[counted])
    finally:
        os.sched_setaffinity(0, usable)
    return ratios


def add_w1(figures: Figures, small: bool) -> None:
    """Print what ``counts`` costs no-op tasks, and how far pairs are apart."""
    with tempfile.TemporaryDirectory() as name:
        found = w1_ratios(Path(name), *((2, 1, 1000) if small else (PAIRS, 4, 20_000)))
    figures.add("monitor.w1_ratio", statistics.median(found), "")
    least, _, most = statistics.quantiles(found, n=4)
    spread = f"half of them {least:.3f} to {most:.3f}, all {min(found):.3f} to {max(found):.3f}"
    print(f"{len(found)} pairs: {spread}", file=sys.stderr)


def main() -> None:
    """Print the figures."""
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    logging.disable(logging.WARNING)
    share, told = trio.run(sampled, 3.0 if options.small else 30.0)
    figures.add("monitor.core_share", share, "cores")
    frame = max(told, key=lambda one: one.covered_s)
    frames = 20 if options.small else FRAMES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures.add("store.rows_per_s", stored(folder, frame, frames), "1/s")
        size_bytes = (folder / STORE_FILE).stat().st_size
        figures.add("store.row_bytes", size_bytes / (frames * HOSTS), "B")
        means = ", ".join(f"avg({level})" for level in LEVELS)
        sql = f"SELECT begin_s / 60, {means} FROM nodes WHERE host = 'host7' GROUP BY 1"
        times = []
        for _ in range(1 if options.small else 5):
            begin_s = time.perf_counter()
            query(folder, sql)
            times.append(time.perf_counter() - begin_s)
        figures.add("store.nodes_query_s", statistics.median(times), "s")
    with tempfile.TemporaryDirectory() as name:
        for figure, seconds in job_hour(Path(name), 1 if options.small else 3, frames).items():
            figures.add(figure, seconds, "s")
    with tempfile.TemporaryDirectory() as name:
        size = (20, 1) if options.small else (1000, 5)
        figures.add("monitor.delay_s", trio.run(delay_s, Path(name), frame, *size), "s")
    add_w1(figures, options.small)


if __name__ == "__main__":
    main()
