"""The format ``xpnet``: files of GPI-Space."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.definition import SettingError, Workflow
from gspc_trio.workflow.formats.format import (
    ForeignWorkflow,
    Format,
    FormatError,
    ReadOptions,
    Source,
    split_pairs,
)
from gspc_trio.workflow.tokens import Outputs

if TYPE_CHECKING:
    from gspc_trio.workflow.formats.xpnet.building import Lowered

_BEGINNING = re.compile(rb"<(defun|template|structs|props)\b")


class XpnetFormat(Format):
    """Files of GPI-Space: Petri nets with typed values and expressions."""

    name: ClassVar[str] = "xpnet"
    options: ClassVar[frozenset[str]] = frozenset({"modules"})
    suffixes: ClassVar[tuple[str, ...]] = (".xpnet", ".xpnt")

    def recognises(self, head: bytes) -> bool:
        """See Format."""
        return _BEGINNING.search(head) is not None and b"<pnml" not in head

    def read(self, source: Source, options: ReadOptions) -> ForeignWorkflow:
        """See Format."""
        from gspc_trio.workflow.formats.xpnet.lowering import lowered  # a grammar takes a moment
        from gspc_trio.workflow.formats.xpnet.module_tasks import ModuleLanguages
        from gspc_trio.workflow.formats.xpnet.reader import Reader

        languages = ModuleLanguages(options.modules, options.modules_file, options.compile)
        reader = Reader()
        main = reader.read(source)
        name = main.name or source.path.rpartition("/")[2].partition(".")[0]
        return XpnetWorkflow(lowered(name, main, reader.problems, languages))


class XpnetWorkflow(ForeignWorkflow):
    """A workflow from an xpnet file; values are written as xpnet writes them.

    Args:
        found: its net, and the types of its ports.
    """

    def __init__(self, found: Lowered) -> None:
        layer = "".join(map(str, found.layers))
        super().__init__(found.net, notes=found.notes, groups=found.groups, layer=layer)
        self._types = found.ports
        self._inputs = found.inputs
        self._outputs = found.outputs
        self._answers = found.answers

    @property
    def inputs(self) -> Mapping[str, str]:
        """See ForeignWorkflow."""
        return self._inputs

    def workflow(self, settings: Sequence[str] = ()) -> Workflow:
        """See ForeignWorkflow; tokens of the settings come to those that are at their places anyway."""
        from attrs import evolve

        filled = {self.check_input(port) for port, _ in split_pairs(settings)}
        places = self.net.places
        for port, place in self._inputs.items():
            if place not in filled and not places[place].is_optional:
                raise WorkflowError(f"net {self.net.name!r} needs values for its input port {port!r}")
        found = super().workflow(settings)
        return evolve(
            found, values={port: [*places[port].initial, *values] for port, values in found.values.items()}
        )

    def parse_value(self, port: str, text: str, /) -> object:
        """Return the value of an expression without names, for a port.

        Raises:
            SettingError: there is no such port, or the text is badly written, or of another type than it.
        """
        from gspc_trio.workflow.formats.xpnet.compiling import ExpressionError, compile_value
        from gspc_trio.workflow.formats.xpnet.grammar import parse_expression
        from gspc_trio.workflow.formats.xpnet.tree import TextStart

        place = self.check_input(port)
        kind = self._types[port]
        why = ""
        texts = [text]
        if place in self._answers:  # who asks writes the value alone
            texts.append(f'Struct [value := {text}, response_id := ""]')
        for one in texts:
            try:
                return compile_value(parse_expression(one, TextStart(port)), {}, kind)()
            except FormatError as error:
                why = why or error.problems[0].message
            except ExpressionError as error:
                raise SettingError(f"the value {text!r} of the port {port!r}: {error.reason}") from None
        raise SettingError(f"the port {port!r} is {kind}, and {text!r} is no value of it: {why}")

    def show_value(self, port: str, value: object, /) -> str:
        """Return a value of a port as xpnet writes it."""
        from gspc_trio.workflow.formats.xpnet.notation import show_value

        if port in self._answers and not (isinstance(value, dict) and "response_id" in value):
            return show_value(value, self._answers[port])
        return show_value(value, self._types[port])

    def plain_value(self, port: str, value: object, /) -> object:
        """Return a value of a port as JSON has it."""
        from gspc_trio.workflow.formats.xpnet.notation import plain_value

        return plain_value(value, self._types[port])

    def show_outputs(self, outputs: Outputs) -> Iterable[str]:
        """See ForeignWorkflow; ports of one place have the same values."""
        return super().show_outputs(self._by_port(outputs))

    def plain_outputs(self, outputs: Outputs) -> Mapping[str, object]:
        """See ForeignWorkflow; ports of one place have the same values."""
        return super().plain_outputs(self._by_port(outputs))

    def _by_port(self, outputs: Outputs) -> Outputs:
        return {port: outputs[place] for port, place in self._outputs.items() if place in outputs}
