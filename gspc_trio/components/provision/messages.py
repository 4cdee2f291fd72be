"""Messages between the RIFs of blocks and their run-time system."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.core.ids import Count
from gspc_trio.core.messages import Question


class Enrolled(Struct, frozen=True):
    """The order for a RIF, as it is also told on standard input: one line of JSON, which is secret."""

    order: str

    def __repr__(self) -> str:
        return "<an order>"


class Enrol(Question[Enrolled], frozen=True):
    """RIF of a block to RTS, in the role ``enrol`` and by the name of its block: give me my order.

    Attributes:
        node: number of its node in the block.
        job_id: what the batch system calls its job.
        restarts: how often the batch system has started the job before.
    """

    node: Count
    job_id: str
    restarts: Count
