"""Types of expressions, found before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from msgspec import Struct

from gspc_trio.core.similar import did_you_mean
from gspc_trio.workflow.formats.xpnet.operations import OPERATIONS, OPERATORS, RIGHT_FIRST, Overload
from gspc_trio.workflow.formats.xpnet.tree import (
    Applied,
    Assigned,
    Expression,
    ExpressionNode,
    Literal,
    Made,
    PathReference,
)
from gspc_trio.workflow.formats.xpnet.types import (
    ANY,
    BOOL,
    CONTROL,
    INTEGRAL_RANGES,
    ValueType,
    difference,
    fits,
    struct_type,
)

STRUCT_DEPTH_MAX = 50
"""Fields of fields are written no deeper."""


class Inference(Struct, frozen=True):
    """What is known of an expression before it runs.

    Attributes:
        expression: which.
        type: of its value.
        bindings: name -> type of each binding that surely has a value at the end.
        types: type of each of its nodes.
        chosen: what each operator and function does; None: that depends on values.
        fresh: those that give a field to a binding that has no value before.
    """

    expression: Expression
    type: ValueType
    bindings: Mapping[str, ValueType]
    types: Mapping[ExpressionNode, ValueType]
    chosen: Mapping[Applied, Overload | None]
    fresh: frozenset[Assigned]


def infer(
    expression: Expression,
    inputs: Mapping[str, ValueType],
    results: Mapping[str, ValueType] | None = None,
) -> Inference:
    """Return the types of an expression and of all in it.

    Args:
        expression: which.
        inputs: name -> type of each binding that has a value before.
        results: name -> type of each binding that must have one in the end.

    Raises:
        FormatError: an operator or function does not take these types; a binding has no value where it is
            read; a result has none in the end, or one of another type. Says where.
    """
    walk = _Inferring(expression, inputs)
    kind = CONTROL
    for part in expression.parts:
        kind = walk.type_of(part)
    for name, wanted in (results or {}).items():
        walk.check_result(name, wanted)
    return Inference(expression, kind, walk.bindings, walk.types, walk.chosen, frozenset(walk.fresh))


def infer_condition(expression: Expression, inputs: Mapping[str, ValueType]) -> Inference:
    """Return the types of a condition: its value is a bool.

    Raises:
        FormatError: as :func:`infer`, or its value is of another type.
    """
    inference = infer(expression, inputs)
    if not fits(inference.type, BOOL):
        last = expression.parts[-1].begin if expression.parts else 0
        raise expression.source.error(last, f"a condition is true or false: this is of type {inference.type}")
    return inference


class _Inferring:
    """One walk along an expression, in the order in which it is evaluated.

    Attributes:
        bindings: name -> type of those that surely have a value by now.
        types, chosen, fresh: see :class:`Inference`.
    """

    def __init__(self, expression: Expression, inputs: Mapping[str, ValueType]) -> None:
        self.expression = expression
        self.bindings = dict(inputs)
        self.types: dict[ExpressionNode, ValueType] = {}
        self.chosen: dict[Applied, Overload | None] = {}
        self.fresh: set[Assigned] = set()
        self._perhaps: set[str] = set()
        self._given_at: dict[str, int] = {}

    def type_of(self, node: ExpressionNode) -> ValueType:
        """Return the type of a node, and remember that of all below it."""
        match node:
            case Literal():
                found = self._literal(node)
            case PathReference():
                found = self._reference(node)
            case Assigned():
                found = self._assigned(node)
            case Made():
                found = self._made(node)
            case Applied():
                found = self._applied(node)
        self.types[node] = found
        return found

    def check_result(self, name: str, wanted: ValueType) -> None:
        """See that a binding has a value of this type in the end."""
        found = self.bindings.get(name)
        if found is None:
            parts = self.expression.parts
            at = parts[-1].begin if parts else 0
            often = "not in every case" if name in self._perhaps else "nowhere"
            known = did_you_mean(name, self._given_at)
            self._fail(
                at, f"${{{name}}} of type {wanted} is given a value {often}{known}: write ${{{name}}} := ..."
            )
        if not fits(found, wanted):
            what = difference(found, wanted)
            self._fail(
                self._given_at.get(name, 0), f"${{{name}}} of type {wanted} is given another type: {what}"
            )

    def _fail(self, at: int, message: str) -> NoReturn:
        raise self.expression.source.error(at, message)

    def _literal(self, node: Literal) -> ValueType:
        if node.kind in INTEGRAL_RANGES:
            low, high = INTEGRAL_RANGES[node.kind]
            if not low <= node.value <= high:
                text, kind = self.expression.text_of(node), ValueType(node.kind)
                self._fail(node.begin, f"{text[:40]} is beyond {kind}, which goes from {low} to {high}")
        return ValueType(node.kind)

    def _reference(self, node: PathReference) -> ValueType:
        name, *fields = node.path
        found = self.bindings.get(name)
        if found is None and name in self._perhaps:
            self._fail(node.begin, f"${{{name}}} is given a value not in every case that comes here")
        if found is None:
            known = ", ".join(sorted(self.bindings)) or "none"
            meant = did_you_mean(name, self.bindings)
            self._fail(
                node.begin, f"${{{name}}} has no value here{meant}; bindings with a value are: {known}"
            )
        for field in fields:
            if found.kind == "any":
                return ANY
            inner = found.field(field)
            if inner is None:
                known = ", ".join(name for name, _ in found.fields)
                there = f"its fields are: {known}" if found.kind == "struct" else "it is no struct"
                self._fail(node.begin, f"{node}: {found} has no field {field}; {there}")
            found = inner
        return found

    def _assigned(self, node: Assigned) -> ValueType:
        kind = self.type_of(node.value)
        name, *fields = node.target.path
        if len(fields) > STRUCT_DEPTH_MAX:
            self._fail(node.begin, f"fields are nested no deeper than {STRUCT_DEPTH_MAX}")
        if fields and name in self._perhaps:
            self._fail(node.begin, f"${{{name}}} is given a value not in every case that comes here")
        before = self.bindings.get(name)
        if fields and before is None:
            self.fresh.add(node)
        self.bindings[name] = self._poked(node.target, before, tuple(fields), kind)
        self._perhaps.discard(name)
        self._given_at[name] = node.begin
        self.types[node.target] = kind
        return kind

    def _poked(
        self, target: PathReference, into: ValueType | None, fields: tuple[str, ...], kind: ValueType
    ) -> ValueType:
        """Return the type of a struct after a field of it was given a value."""
        if not fields:
            return kind
        if into is not None and into.kind == "any":
            return ANY
        if into is not None and into.kind != "struct":
            self._fail(target.begin, f"{target}: a value of type {into} has no fields")
        name, *rest = fields
        there = dict(into.fields) if into is not None else {}
        there[name] = self._poked(target, there.get(name), tuple(rest), kind)
        after = struct_type("", there.items())
        return into if into is not None and into.fields == after.fields else after

    def _made(self, node: Made) -> ValueType:
        kinds = [self.type_of(item) for item in node.items]
        if node.kind == "struct":
            return struct_type("", zip(node.names, kinds, strict=True))
        return ValueType(node.kind)

    def _applied(self, node: Applied) -> ValueType:
        overloads = OPERATIONS.get(node.name)
        if overloads is None:
            meant = did_you_mean(node.name, OPERATIONS.keys() - OPERATORS)
            self._fail(node.begin, f"there is no function {node.name}{meant}")
        if len(node.operands) != len(overloads[0].operands):
            count = len(overloads[0].operands)
            self._fail(node.begin, f"{node.name} takes {count} values, not {len(node.operands)}")
        kinds = self._operand_types(node)
        fitting = [each for each in overloads if takes(each, kinds)]
        if not fitting:
            self._fail(node.begin, refusal(node.name, kinds))
        one = fitting[0] if len(fitting) == 1 else None
        self.chosen[node] = one
        results = {each.result for each in fitting}
        return ValueType(results.pop()) if len(results) == 1 else ANY

    def _operand_types(self, node: Applied) -> list[ValueType]:
        """Return the types of operands, in the order of evaluation; what the second may skip is not sure."""
        if node.name in RIGHT_FIRST:
            left, right = node.operands
            kind = self.type_of(right)
            return [self.type_of(left), kind]
        if node.name not in ("||", "&&"):
            return [self.type_of(operand) for operand in node.operands]
        left, right = node.operands
        first = self.type_of(left)
        before = dict(self.bindings)
        second = self.type_of(right)
        after, self.bindings = self.bindings, {}
        for name, kind in after.items():
            if before.get(name) == kind:
                self.bindings[name] = kind
            else:
                self._perhaps.add(name)
        return [first, second]


def takes(overload: Overload, kinds: list[ValueType]) -> bool:
    """Return whether an overload may be what these operands need."""
    return all(
        "any" in (wanted, kind.kind) or wanted == kind.kind
        for wanted, kind in zip(overload.operands, kinds, strict=True)
    )


def refusal(name: str, kinds: list[ValueType]) -> str:
    """Return what to say of operands that an operator or a function does not take."""
    overloads = OPERATIONS[name]
    found = " and ".join(str(kind) for kind in kinds)
    takes = list(
        dict.fromkeys(" and ".join(str(ValueType(kind)) for kind in each.operands) for each in overloads)
    )
    if name == "neg":
        name = "-"
    if len(kinds) == 2 and kinds[0] != kinds[1] and all(len(set(each.operands)) == 1 for each in overloads):
        same = [str(ValueType(each.operands[0])) for each in overloads]
        return f"{name} takes two values of one type, not {found}; it takes {', '.join(same)}"
    return f"{name} does not take {found}; it takes {', or '.join(takes)}"
