"""Messages between the RIFs of blocks and their run-time system."""

from __future__ import annotations

from enum import StrEnum

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


class FileMove(StrEnum):
    """What a RIF does with a file in the directory of its site."""

    TRANSFER = "file_transfers"
    OPERATION = "file_operations"


class WantTurn(Struct, frozen=True):
    """RIF to RTS: may it begin, by the throttles of its site and of all sites? Answered by a TurnBegins.

    Attributes:
        number: of it, which no other of this RIF has.
        move: what it is.
        begun: it was let begin over an earlier connection, and is under way.
    """

    number: Count
    move: FileMove
    begun: bool = False


class TurnBegins(Struct, frozen=True):
    """RTS to RIF: this one may begin."""

    number: Count


class TurnOver(Struct, frozen=True):
    """RIF to RTS: this one is over, or not wanted any more."""

    number: Count


class FilesFailed(Struct, frozen=True):
    """RIF to RTS: files of a task could not be staged here, for which the task cannot be blamed."""

    detail: str
