"""The format WfFormat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from gspc_trio.records.facts import Record
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.formats.format import (
    ForeignWorkflow,
    Format,
    ReadOptions,
    Source,
    Surroundings,
    Written,
)
from gspc_trio.workflow.net import Net


class WfFormat(Format):
    """Recorded runs of workflows, as WfCommons collects them."""

    name: ClassVar[str] = "wfformat"
    suffixes: ClassVar[tuple[str, ...]] = (".json",)
    options: ClassVar[frozenset[str]] = frozenset({"scale", "work", "files"})

    def recognises(self, head: bytes) -> bool:
        """See Format."""
        return head.lstrip().startswith(b"{") and b'"schemaVersion"' in head

    def write(self, net: Net, _foreign: ForeignWorkflow | None, /) -> Written:
        """Refuse: only a run has times."""
        raise WorkflowError(
            f"wfformat tells of a run: run {net.name!r} with --records run.jsonl, and convert run.jsonl"
        )

    def of_records(self, records: Iterable[Record], surroundings: Surroundings, /) -> Written:
        """See Format."""
        from gspc_trio.workflow.formats.wfformat.write import trace_of_records, write_trace

        recorded = trace_of_records(records, surroundings)
        return Written(write_trace(recorded.trace).encode(), recorded.lost)

    def read(self, source: Source, options: ReadOptions) -> ForeignWorkflow:
        """See Format."""
        from gspc_trio.workflow.formats.wfformat.read import read_trace  # what only reading needs
        from gspc_trio.workflow.formats.wfformat.running import running_trace

        return running_trace(read_trace(source), source, options)
