"""What trust costs: journal, encryption, hostile peers.

    python bench/trust.py [--json] [--small]

``journal.w1_ratio``        no-op tasks per second of a journaled job over those of a plain one
``journal.restore_s``       seconds from a journal of 100,000 finished tasks to an engine that goes on
``tls.cost``                part of the control throughput of two processes that encryption takes
``flood.p99_ratio``         99th percentile of an honest round trip under 1,000 slow handshakes and 1,000
                            connects a second, over that in peace: median of many pairs, in turn
``flood.connects_per_s``    what that flood came to
"""

from __future__ import annotations

import argparse
import math
import mmap
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import trio
from figures import Figures, options_parser

from gspc_trio import Net, farm, open_job, open_rts
from gspc_trio.components.job.journal_bytes import About
from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.job.shell.journal import create_journal, open_journal
from gspc_trio.components.rts.messages import ListJobs
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.worker.messages import Finished
from gspc_trio.core.messages import Done
from gspc_trio.core.task import Outcome, Reason, TaskState
from gspc_trio.nursery.connections.certificates import Authority
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer
from gspc_trio.protocol.values import dumps

ABOUT = About("bench", "trust.py", "", (), {})
TOKEN = bytes(range(32))
ADDRESSES = {False: "ws://127.0.0.1:0", True: "wss://127.0.0.1:0"}
SERVE, FLOOD = "--serve", "--flood"


def noop(value: int) -> int:
    """Return the argument: the smallest task."""
    return value


def net_of(tasks: int) -> Net:
    """Return a workflow of so many no-op tasks."""
    return farm(noop, name="noops", default=list(range(tasks)))


async def plain_run(rts: RunTimeSystem, tasks: int) -> float:
    """Return the seconds of a job without a journal."""
    begun = time.perf_counter()
    async with open_job(net_of(tasks), rts=rts) as job:
        result = await job.wait()
    assert result.tasks["finished"] == tasks
    return time.perf_counter() - begun


async def journaled_run(rts: RunTimeSystem, tasks: int) -> float:
    """Return the seconds of the same job with one."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        with create_journal(Path(folder), ABOUT) as journal:
            async with open_job(net_of(tasks), rts=rts, journal=journal) as job:
                result = await job.wait()
        assert result.tasks["finished"] == tasks
        return time.perf_counter() - begun


async def measure_journal(figures: Figures, tasks: int, runs: int) -> None:
    """Compare jobs with and without a journal, in turn so that both meet the same neighbours."""
    async with open_rts(cores=2) as rts:
        await plain_run(rts, tasks)
        pairs = [(await plain_run(rts, tasks), await journaled_run(rts, tasks)) for _ in range(runs)]
    figures.add("journal.w1_ratio", statistics.median(plain / kept for plain, kept in pairs), "")


async def restore_s(tasks: int) -> float:
    """Return the seconds it takes to read and replay a journal of so many finished tasks."""
    with tempfile.TemporaryDirectory() as folder:
        with create_journal(Path(folder), ABOUT, file_bytes_max=2**40) as journal:
            engine = await journal.recover(net_of(tasks), {})
            async with trio.open_nursery() as nursery:
                waiting: list[TaskDone] = []
                left = tasks - 1

                def keep_more() -> None:  # the engine gives so many only before it has results of some
                    nonlocal left
                    while left and (task_id := engine.next()) is not None:
                        left -= 1
                        task = engine.extract(task_id)
                        outcome = Outcome(task_id, 1, Reason.FINISHED, ((dumps(task_id),),))
                        waiting.append(TaskDone(task_id, TaskState.FINISHED, outcome, task.name))
                        journal.keep(waiting[-1])

                def kept(count: int) -> None:
                    for done in waiting[:count]:
                        engine.inject(done.task_id, done.outcome.values)
                    del waiting[:count]
                    keep_more()
                    if not waiting:
                        nursery.cancel_scope.cancel()

                keep_more()
                nursery.start_soon(journal.run, kept)
        begun = time.perf_counter()
        with open_journal(Path(folder)) as journal:
            await journal.recover(net_of(tasks), {})
            assert journal.finished_before == tasks - 1
        return time.perf_counter() - begun


def finished(number: int) -> Finished:
    """Return what a worker says of 32 tasks: the commonest message there is."""
    outcomes = [Outcome(number + i, 1, Reason.FINISHED, ((b"\x01",),), duration_s=0.01) for i in range(32)]
    return Finished("j1", "r1.core0", tuple(outcomes))


async def serve_echo(folder: Path, secure: bool) -> None:
    """Answer calls and take messages in this process, until standard input ends."""
    issue = Authority(folder).issue if secure else lambda _: ""
    network = Network(wire_codec, TOKEN, credentials=issue("rts"))

    async def echo(peer: Peer) -> None:
        while True:
            for message in await peer.receive():
                if isinstance(message, IncomingCall):
                    message.reply(Done())

    async def listen(task_status: trio.TaskStatus[str]) -> None:
        await network.listen(ADDRESSES[secure], echo, role="rts", name="rts", task_status=task_status)

    async with trio.open_nursery() as nursery:
        print(await nursery.start(listen), flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


@contextmanager
def other_process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """This program again, with other arguments, for the time of a block."""
    command = [sys.executable, __file__, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@asynccontextmanager
async def echo_process(folder: Path, secure: bool) -> AsyncIterator[Peer]:
    """A connection to an echo in another process."""
    issue = Authority(folder).issue if secure else lambda _: ""
    with other_process(SERVE, str(folder), "--secure" if secure else "--plain") as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        network = Network(wire_codec, TOKEN, credentials=issue("job"))
        async with network.connect(address, role="job", name="j1", expect="rts") as peer:
            yield peer


async def messages_per_s(peer: Peer, number: int) -> float:
    """Return how many messages arrive in a second, in frames as full as a busy scheduler's."""
    batch = [finished(32 * i) for i in range(64)]
    begun = time.perf_counter()
    for _ in range(number // 64):
        for message in batch:
            peer.post(message)
        await trio.lowlevel.checkpoint()
        await peer.call(ListJobs())
    return number / (time.perf_counter() - begun)


async def measure_tls(figures: Figures, number: int, runs: int) -> None:
    """Compare an encrypted connection with a plain one, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        async with echo_process(Path(folder), False) as plain, echo_process(Path(folder), True) as secure:
            await messages_per_s(plain, number), await messages_per_s(secure, number)
            ratios = []
            for _ in range(runs):
                rate = await messages_per_s(plain, number)
                ratios.append(await messages_per_s(secure, number) / rate)
    figures.add("tls.cost", 1 - statistics.median(ratios), "")


@contextmanager
def shared_count(path: Path) -> Iterator[mmap.mmap]:
    """Eight bytes that two processes see."""
    with path.open("a+b") as file:
        file.truncate(8)
        with mmap.mmap(file.fileno(), 8) as count:
            yield count


def flood(address: str, counter: Path) -> None:
    """Keep 1,000 handshakes open that never end, and make 1,000 connections a second beside them.

    How many it has made stands in the file. Stopped for a while, it does not catch up.
    """
    host, port = address.removeprefix("ws://").split(":")
    slow: deque[socket.socket] = deque(maxlen=1_000)
    due = time.monotonic()
    with shared_count(counter) as count:
        while True:
            with suppress(OSError):  # we may be thrown out at any time
                one = socket.create_connection((host, int(port)))
                slow.append(one)
                one.sendall(b"GET / HTTP/1.1\r\n")
            number = int.from_bytes(count[:]) + 1
            count[:] = number.to_bytes(8)
            if number == 1_000:
                print("flooding", flush=True)
            now = time.monotonic()
            due = max(due + 0.001, now - 0.01)
            if number > 1_000 and due > now:
                time.sleep(due - now)


async def round_trips_s(peer: Peer, number: int) -> list[float]:
    """Return the seconds of so many calls, a few milliseconds apart."""
    times = []
    for _ in range(number):
        begun = time.perf_counter()
        await peer.call(ListJobs())
        times.append(time.perf_counter() - begun)
        await trio.sleep(0.002)
    return sorted(times)


async def measure_flood(figures: Figures, number: int, runs: int) -> None:
    """Compare round trips in peace and under a flood, in turn; listener and flood are processes.

    The flood is one process, which stands still in peace. Both kinds alternate every few seconds, so that
    both meet the same neighbours; the figure is the median of the ratios of such pairs.
    """
    ratios, rates = [], []
    with tempfile.TemporaryDirectory() as folder, shared_count(counter := Path(folder, "made")) as count:
        async with echo_process(Path(folder), False) as peer:
            with other_process(FLOOD, peer.remote, "--counter", str(counter)) as process:
                assert process.stdout is not None
                await trio.to_thread.run_sync(process.stdout.readline)
                await round_trips_s(peer, number // 10)
                for _ in range(runs):
                    process.send_signal(signal.SIGSTOP)
                    peace = await round_trips_s(peer, number)
                    made, begun = int.from_bytes(count[:]), time.perf_counter()
                    process.send_signal(signal.SIGCONT)
                    war = await round_trips_s(peer, number)
                    rates.append((int.from_bytes(count[:]) - made) / (time.perf_counter() - begun))
                    ratios.append(war[int(0.99 * number)] / peace[int(0.99 * number)])
                assert process.poll() is None, "the flood has ended"
    figures.add("flood.p99_ratio", statistics.median(ratios), "")
    figures.add("flood.connects_per_s", statistics.median(rates), "1/s")


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument(SERVE, help=argparse.SUPPRESS)
    parser.add_argument("--secure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(FLOOD, help=argparse.SUPPRESS)
    parser.add_argument("--counter", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        trio.run(serve_echo, Path(options.serve), options.secure)
        return
    if options.flood is not None:
        flood(options.flood, options.counter)
        return
    tasks, runs = (1_000, 1) if options.small else (20_000, 5)
    figures = Figures(options.json)
    trio.run(measure_journal, figures, tasks, runs)
    tasks = 5_000 if options.small else 100_000
    figures.add(
        "journal.restore_s", min((trio.run(restore_s, tasks) for _ in range(runs)), default=math.nan), "s"
    )
    messages, trips = (2_560, 100) if options.small else (64_000, 500)
    trio.run(measure_tls, figures, messages, runs)
    trio.run(measure_flood, figures, trips, 4 * runs)


if __name__ == "__main__":
    main()
