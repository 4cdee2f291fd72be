"""Records as they travel to those who watch."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.core.ids import Count
from gspc_trio.records import facts as records


class Watch(Struct, frozen=True):
    """Send a snapshot, then records: at most ``credit`` batches until Watch comes again."""

    credit: Count


class RecordBatch(Struct, frozen=True):
    """Records in order.

    Attributes:
        records: what happened.
        snapshot: they, and those of the next batches while ``more`` is set, stand for the whole state.
        more: the snapshot goes on in the next batch.
    """

    records: tuple[records.Record, ...]
    snapshot: bool = False
    more: bool = False
