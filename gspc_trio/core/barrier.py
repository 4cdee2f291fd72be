"""The barrier that programs of a co-allocation call themselves (COA-2): what they and their host say.

A program says it over the socket of its host at which tasks reach it (``core.nested``), and the host passes
it on.
"""

from __future__ import annotations

from msgspec import Struct, msgpack

from gspc_trio.core.ids import JobId, TaskId

BARRIER_VARIABLE = "GSPC_BARRIER"
"""Environment variable of programs that were started before all are ready: where they say that they are."""

AT_BARRIER = b"barrier"
"""What a program says when it is ready."""

NO = b"no"
"""The answer if not all got ready; else it is :data:`YES` and what ``GSPC_RESOURCES`` has."""

YES = b"yes "


class BarrierPlace(Struct, frozen=True, array_like=True):
    """Where a program calls the barrier.

    Attributes:
        address: name of the socket of its host.
        job: that runs it.
        task_id: as which it runs.
    """

    address: str
    job: JobId
    task_id: TaskId

    def to_text(self) -> str:
        """Return it as an environment variable has it."""
        return msgpack.encode(self).hex()


def read_place(text: str) -> BarrierPlace:
    """Return what an environment variable says.

    Raises:
        ValueError: it is no such place.
    """
    return msgpack.decode(bytes.fromhex(text), type=BarrierPlace)
