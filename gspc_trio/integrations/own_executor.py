"""The executor that a bridge opens for this process when it is given none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gspc_trio.executor import Executor

SHARE = 0.5
"""Of the system's shared memory, what large values may take."""


def open_own_executor(
    cores: int = 0, variables: Mapping[str, str] | None = None, large_bytes_min: int | None = None
) -> Executor:
    """Open an executor whose large values lie in shared memory.

    Args:
        cores: how many; 0 for what this machine has.
        variables: of the environment of its compute processes, set before they import libraries.
        large_bytes_min: arguments and results of so many bytes are large; None for what is usual.
    """
    from gspc_trio.executor import Executor  # not at the top: compute processes import this module

    found = os.statvfs("/dev/shm")
    data_bytes = int(found.f_blocks * found.f_frsize * SHARE)
    if variables is None:
        return Executor(cores=cores, data_bytes=data_bytes, large_bytes_min=large_bytes_min)
    return Executor(
        cores=cores,
        data_bytes=data_bytes,
        large_bytes_min=large_bytes_min,
        initializer=set_variables,
        initargs=(dict(variables),),
    )


def set_variables(variables: Mapping[str, str]) -> None:
    """Set environment variables of a process before libraries look at them: how many threads they use."""
    os.environ.update(variables)
