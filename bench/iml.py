"""Figures of the memory layer: two servers in processes of their own, a client near one of them.

    python bench/iml.py [--json] [--small]

``iml.local_get_vs_copy``     speed of a get of 64 MiB on the client's host, over that of a plain memory copy
``iml.map_us``                map 64 MiB that lie on the client's host, and unmap them
``iml.remote_get_vs_tcp``     speed of a get of 64 MiB from the other host, over that of a plain TCP stream
``iml.remote_get_gb_per_s``   that get
``iml.small_gets_per_s``      gets of 4 KiB on the client's host, 32 at a time
``iml.task_to_task_mb_per_s``  a task makes 64 MiB with a buffer that need not be copied, as an array has, and
                              the next one, on another worker, looks at every page of it
``iml.task_to_task_bytes_mb_per_s``  the same with ``bytes``
"""

from __future__ import annotations

import os
import pickle
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio
from figures import Figures, options_parser

from gspc_trio import Executor
from gspc_trio.iml.layout import Layout
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.layer import open_iml

MIB = 1 << 20
PAGE_BYTES = 4096
IN_FLIGHT = 32
SENDER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
data = bytes(int(sys.argv[1]))
while True:
    connection, _ = listener.accept()
    while connection.recv(1):
        connection.sendall(data)
"""


@contextmanager
def servers(folder: Path, hosts: str) -> Iterator[Path]:
    """Run a memory server for each host; yield their connection file."""
    file = folder / "iml.json"
    started = []
    try:
        for host in hosts:
            command = ["start", "--host", host, "--memory", "1GiB", "--connection-file", str(file)]
            process = subprocess.Popen(
                [sys.executable, "-m", "gspc_trio.cli.iml", *command], stdout=subprocess.PIPE, text=True
            )
            started.append(process)
            assert process.stdout is not None
            process.stdout.readline()
        yield file
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.communicate()


@contextmanager
def tcp_sender(size_bytes: int) -> Iterator[socket.socket]:
    """Yield a connection on which another process sends so many bytes for each byte it gets."""
    process = subprocess.Popen(
        [sys.executable, "-c", SENDER, str(size_bytes)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as connection:
            yield connection
    finally:
        process.kill()
        process.communicate()


def receive(connection: socket.socket, size_bytes: int) -> bytearray:
    """Return what the sender sends."""
    connection.sendall(b".")
    target = bytearray(size_bytes)
    with memoryview(target) as view:
        done = 0
        while done < size_bytes:
            done += connection.recv_into(view[done:])
    return target


class Block:
    """Stands for an array: its buffer travels out of band."""

    def __init__(self, content: Any) -> None:
        self.content = memoryview(content)

    def __reduce_ex__(self, _: Any) -> Any:
        return Block, (pickle.PickleBuffer(self.content),)


def produce(size_bytes: int, kind: str, seed: int) -> Any:
    """Return a block, or bytes, full of the seed."""
    content = bytes([seed]) * size_bytes
    return content if kind == "bytes" else Block(content)


def consume(value: Any) -> int:
    """Return the sum of a byte of each page."""
    return sum((value if isinstance(value, bytes) else value.content)[::PAGE_BYTES])


def task_to_task(executor: Executor, kind: str, size_bytes: int, runs: int) -> float:
    """Return MB/s of making and using values of this size."""
    taken_s = []
    for run in range(runs + 1):
        begun = time.perf_counter()
        made = executor.submit(produce, size_bytes, kind, run + 1)
        assert executor.submit(consume, made).result() == (run + 1) * (size_bytes // PAGE_BYTES)
        taken_s.append(time.perf_counter() - begun)
    return size_bytes / statistics.median(taken_s[1:]) / 1e6


async def seconds(work: Callable[[], Awaitable[object]]) -> float:
    """Return how long the work takes."""
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long the work takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


async def small_gets(iml: Iml, number: int) -> float:
    """Return gets of 4 KiB per second."""
    data = await iml.alloc(4096, os.urandom(4096), layout=Layout(("a",)))
    left = iter(range(number))

    async def work() -> None:
        for _ in left:
            await iml.get(data)

    begun = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(IN_FLIGHT):
            nursery.start_soon(work)
    return number / (time.perf_counter() - begun)


async def measure(figures: Figures, file: Path, size_bytes: int, runs: int) -> None:
    """Measure and print; what is compared is measured in turns."""
    content = os.urandom(MIB) * (size_bytes // MIB)
    async with open_iml(job="bench", host="a", connection_file=file) as iml:
        near = await iml.alloc(size_bytes, content, layout=Layout(("a",)))
        far = await iml.alloc(size_bytes, content, layout=Layout(("b",)))
        assert await iml.get(near) == await iml.get(far) == content
        copies, gets = [], []
        for _ in range(runs):
            copies.append(seconds_of(lambda: bytes(memoryview(content))))
            gets.append(await seconds(lambda: iml.get(near)))
        figures.add("iml.local_get_vs_copy", statistics.median(copies) / statistics.median(gets), "x")

        async def map_it() -> None:
            async with iml.map(near):
                pass

        times = [await seconds(map_it) for _ in range(runs * 20)]
        figures.add("iml.map_us", 1e6 * statistics.median(times), "us")
        streams, gets = [], []
        with tcp_sender(size_bytes) as connection:
            receive(connection, size_bytes)
            for _ in range(runs):
                streams.append(seconds_of(lambda: receive(connection, size_bytes)))
                gets.append(await seconds(lambda: iml.get(far)))
        figures.add("iml.remote_get_vs_tcp", statistics.median(streams) / statistics.median(gets), "x")
        figures.add("iml.remote_get_gb_per_s", size_bytes / statistics.median(gets) / 1e9, "GB/s")
        figures.add("iml.small_gets_per_s", await small_gets(iml, 200 * runs), "1/s")


def main() -> None:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    size_bytes, runs = (4 * MIB, 2) if options.small else (64 * MIB, 9)
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder), "ab") as file:
        figures = Figures(options.json)
        trio.run(measure, figures, file, size_bytes, runs)
    with Executor(cores=2, data_bytes=1024 * MIB) as executor:
        rate = task_to_task(executor, "block", size_bytes, runs)
        figures.add("iml.task_to_task_mb_per_s", rate, "MB/s")
        rate = task_to_task(executor, "bytes", size_bytes, runs)
        figures.add("iml.task_to_task_bytes_mb_per_s", rate, "MB/s")


if __name__ == "__main__":
    main()
