"""A task that holds several resources: all those of this host are its own while it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from gspc_trio.core.held import cpus_here, hold


@contextmanager
def together(described: Sequence[str]) -> Iterator[None]:
    """Hold these resources, and run on all their CPUs of this host; afterwards as before.

    A worker is pinned to the CPUs of its own resource, which is the first of these, or not at all.
    """
    before = os.sched_getaffinity(0)
    hold(described)
    try:
        cpus = cpus_here(described)
        if before <= cpus:
            with suppress(OSError):  # CPUs that this process may not use: it stays where it is
                os.sched_setaffinity(0, cpus)
        yield
    finally:
        hold(())
        with suppress(OSError):
            os.sched_setaffinity(0, before)
