"""``gspc-coallocate barrier``: for programs that are no Python."""

from __future__ import annotations

import os

from gspc_trio import coallocation
from gspc_trio.cli.common import CommandError, DecidedStatus
from gspc_trio.core.held import RESOURCES_VARIABLE


def barrier() -> int:
    """Say that this program is ready, and wait for the others of its job: status 0 if all are, else 1.

    It is called within a program of a job with start=inside. If all are ready it prints what GSPC_RESOURCES
    has in other programs: id@host of all resources of the job, with commas between.
    """
    try:
        all_ready = coallocation.barrier()
    except RuntimeError as error:
        raise CommandError(str(error)) from None
    if not all_ready:
        return DecidedStatus(1)
    print(os.environ[RESOURCES_VARIABLE])
    return DecidedStatus(0)
