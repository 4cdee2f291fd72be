"""The disk that memory servers of one simulated host spill to: it may be full for a while."""

from __future__ import annotations

import errno
import os

import trio

from gspc_trio.iml.segment import Segment, SpillFile
from gspc_trio.testing.layer.threads import call_trio


class SpillDisk:
    """What the spill files of one host have in common.

    Attributes:
        full_until_s: until when it takes no more.
    """

    def __init__(self) -> None:
        self.full_until_s: float = 0.0

    async def is_full(self) -> bool:
        """Return whether it takes no more now."""
        await trio.lowlevel.checkpoint()
        return trio.current_time() < self.full_until_s


class SimulatedSpill(SpillFile):
    """A spill file in memory, which is written and read in threads.

    Args:
        disk: on which it is.
    """

    def __init__(self, disk: SpillDisk) -> None:
        self.descriptor: int = os.memfd_create("spill")
        self._disk = disk

    def write_from(self, segment: Segment, offset: int) -> None:
        """Write all of a segment, or the first half of it when the disk is full.

        Raises:
            OSError: the disk is full.
        """
        if call_trio(self._disk.is_full):
            os.pwrite(self.descriptor, os.pread(segment.descriptor, segment.size_bytes // 2, 0), offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_from(segment, offset)
