"""The format PNML."""

from __future__ import annotations

from typing import ClassVar

from gspc_trio.workflow.formats.format import ForeignWorkflow, Format, ReadOptions, Source


class PnmlFormat(Format):
    """Place/transition nets of ISO/IEC 15909-2 and of the tools around it."""

    name: ClassVar[str] = "pnml"
    suffixes: ClassVar[tuple[str, ...]] = (".pnml", ".tapn")
    options: ClassVar[frozenset[str]] = frozenset({"tasks", "firings", "net"})

    def recognises(self, head: bytes) -> bool:
        """See Format."""
        return b"<pnml" in head

    def read(self, source: Source, options: ReadOptions) -> ForeignWorkflow:
        """See Format."""
        from gspc_trio.workflow.formats.pnml.reader import read_pnml  # what reads XML takes a moment
        from gspc_trio.workflow.formats.pnml.running import running_workflow

        net, notes = read_pnml(source, options.net)
        return running_workflow(net, source, options, notes)
