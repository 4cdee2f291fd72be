"""Load of this host (CPU, memory), measured regularly for people who watch."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from gspc_trio.core.ids import RifId
from gspc_trio.records.facts import HostLoad

LoadReport: TypeAlias = Callable[[RifId, str, Callable[[HostLoad], None]], Awaitable[None]]
"""What :func:`report_load` is."""

LOAD_INTERVAL_S = 2.0
"""Seconds between two measurements."""


async def report_load(rif_id: RifId, host: str, post: Callable[[HostLoad], None]) -> None:
    """Measure the load of this host regularly, until cancelled.

    Args:
        rif_id, host: of the RIF that reports it.
        post: takes each measurement.
    """
    cpus = os.cpu_count() or 1
    await trio.sleep(LOAD_INTERVAL_S)
    import psutil  # not before the first task

    psutil.cpu_percent()  # counts from here
    while True:
        await trio.sleep(LOAD_INTERVAL_S)
        memory = psutil.virtual_memory()
        post(
            HostLoad(
                trio.current_time(),
                rif_id,
                host,
                os.getloadavg()[0],
                cpus,
                psutil.cpu_percent() / 100,
                memory.total - memory.available,
                memory.total,
            )
        )
