"""The format PNML."""

from __future__ import annotations

from typing import ClassVar

from gspc_trio.workflow.formats.format import ForeignWorkflow, Format, ReadOptions, Source, Written
from gspc_trio.workflow.net import Net


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

    def write(self, net: Net, foreign: ForeignWorkflow | None, /) -> Written:
        """See Format."""
        from gspc_trio.workflow.formats.pnml.from_net import pnml_of
        from gspc_trio.workflow.formats.pnml.running import PnmlWorkflow
        from gspc_trio.workflow.formats.pnml.writer import write_pnml

        if isinstance(foreign, PnmlWorkflow):
            return Written(write_pnml(foreign.source).encode())
        groups = {} if foreign is None else foreign.groups
        found, lost = pnml_of(net, groups)
        return Written(write_pnml(found).encode(), tuple(lost))
