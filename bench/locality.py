"""Locality: three logical hosts, each with its own memory server, and data spread round robin over them.

    python bench/locality.py [--json] [--small]

``locality.local_share``          share of the bytes that tasks read on the host where they lie
``locality.local_share_without``  the same when tasks do not say where their data lies
``locality.speedup``              how much sooner all is read, from the begin of the first task on
``locality.FORM_SECONDS``         local share of tasks that take so long and ask for one ``core``, for a core
                                  with ``memory``, for a ``pair`` of cores, or for one of the ``same_host``

Both ways take turns; the first three figures are medians.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import trio
from figures import Figures, options_parser

from gspc_trio import JobSettings, Net
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml.layout import Layout
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.shell.layer import join_layer
from gspc_trio.iml.shell.server_process import open_server_process
from gspc_trio.nursery.connections.network import Network

HOSTS = ("alpha", "beta", "gamma")
MIB = 1 << 20
MEMORY_BYTES = 512 * MIB
CORES = 2
FORMS: dict[str, dict[str, Any]] = {
    "core": {},
    "memory": {"memory_bytes": 16 * MIB},
    "pair": {"requires": ["core", "core"]},
    "same_host": {"requires": ["core", "core"], "same_host": True},
}
TASKS_OF = ((0.005, 120), (0.1, 60), (1.0, 18))
"""Seconds that tasks take, and how many."""


def look(view: memoryview, pause_s: float) -> tuple[int, int, str, float, float]:
    """Return the bytes, the number of the host where they lie, the host of this task, its begin and end."""
    from gspc_trio.compute import data

    begun = time.time()
    home = view[0]
    assert sum(view[::4096]) == home * len(view[::4096])
    time.sleep(pause_s)
    return len(view), home, data.serializer.host, begun, time.time()


async def read_all(
    rts: RunTimeSystem,
    items: int,
    size_bytes: int,
    near_data: bool,
    pause_s: float = 0.005,
    form: str = "core",
) -> tuple[float, float]:
    """Return the share of the bytes read where they lie, and the seconds that took."""
    net = Net("locality")
    net.input("ranges")
    net.place("pause", [pause_s], may_keep=True)
    net.output("seen")
    net.transition("look", look, inputs=["ranges"], reads=["pause"], outputs=["seen"], **FORMS[form])
    assert rts.data is not None
    async with join_layer(Network(wire_codec, rts.data.token), rts.data.address) as iml:
        ranges: list[Any] = []
        for item in range(items):
            home = item % len(HOSTS)
            content = bytes([home]) * size_bytes
            data = await iml.alloc(size_bytes, content, layout=Layout((HOSTS[home],)))
            ranges.append(await iml.placed(data))
        settings = JobSettings(name="locality", near_data=near_data)
        async with open_job(net, rts=rts, values={"ranges": ranges}, settings=settings) as job:
            result = await job.wait()
        for each in ranges:
            await iml.free(each.data_id)
    seen = result.outputs["seen"]
    assert len(seen) == items
    local = sum(size for size, home, host, _, _ in seen if HOSTS[home] == host)
    taken_s = max(end for *_, end in seen) - min(begun for *_, begun, _ in seen)
    return local / sum(size for size, *_ in seen), taken_s


async def measure(figures: Figures, rounds: int, items: int, size_bytes: int) -> None:
    """Measure and print."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        publish = (
            Path(folder) / "rts.json"
        )  # so that it listens for the RIFs, which are processes of their own
        opened = open_rts(cores=CORES, host=HOSTS[0], data_bytes=MEMORY_BYTES, publish=publish)
        rts = await stack.enter_async_context(opened)
        assert rts.data is not None
        for host in HOSTS[1:]:
            await stack.enter_async_context(open_server_process(host, Quota(MEMORY_BYTES), layer=rts.data))
        report = await rts.bootstrap(HOSTS[1:], "local", cores=CORES)
        assert not report.failed, report.failed
        await read_all(rts, len(HOSTS), size_bytes, True)
        found = []
        for _ in range(rounds):
            near = await read_all(rts, items, size_bytes, True)
            anywhere = await read_all(rts, items, size_bytes, False)
            found.append((near[0], anywhere[0], anywhere[1] / near[1]))
        shares = {}
        for pause_s, tasks in TASKS_OF:
            for form in FORMS:
                found_s = await read_all(rts, min(tasks, items), size_bytes // 8, True, pause_s, form)
                shares[f"locality.{form}_{pause_s:g}"] = found_s[0]
    share, share_without, speedup = map(statistics.median, zip(*found, strict=True))
    figures.add("locality.local_share", share, "of 1")
    figures.add("locality.local_share_without", share_without, "of 1")
    figures.add("locality.speedup", speedup, "x")
    for name, local in shares.items():
        figures.add(name, local, "of 1")


def main() -> None:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    rounds, items, size_bytes = (1, 30, MIB // 4) if options.small else (3, 180, 2 * MIB)
    trio.run(measure, Figures(options.json), rounds, items, size_bytes)


if __name__ == "__main__":
    main()
