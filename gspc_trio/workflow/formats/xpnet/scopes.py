"""What names stand for at some place of an xpnet file: types, structures, templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.core.similar import did_you_mean
from gspc_trio.workflow.formats.format import Problem
from gspc_trio.workflow.formats.xpnet.description import Defun, StructSpot
from gspc_trio.workflow.formats.xpnet.types import NAMED_TYPES, SHARED, ValueType, struct_type
from gspc_trio.workflow.formats.xpnet.vocabulary import Spot

STRUCT_DEPTH_MAX = 50
"""How deep structures may be in each other."""

SHARED_PREFIX = "shared_"
"""Begins the name of the type of values that are counted; the rest is the name of their cleanup place."""


class Structures:
    """The structures that are known at some place of a file.

    Args:
        structs: the ``<struct>`` elements, inner ones last.
        types: names of types -> what they stand for, in a template.
        report: takes what is wrong.
    """

    def __init__(
        self, structs: Sequence[StructSpot], types: Mapping[str, str], report: Callable[[Problem], None]
    ) -> None:
        self._structs = {one.name: one for one in structs}
        self._types = types
        self._report = report
        self._found: dict[str, ValueType | None] = {}
        self._open: list[str] = []

    def type_of(self, name: str, spot: Spot) -> ValueType | None:
        """Return the type of this name, None if there is none; then it is reported at the spot."""
        name = " ".join(self._types.get(name, name).split())
        if not name:
            return None  # its attribute is missing, which is said already
        if name in self._structs:
            return self._struct(name, spot)
        if name in NAMED_TYPES:
            return NAMED_TYPES[name]
        if name.startswith(SHARED_PREFIX) and len(name) > len(SHARED_PREFIX):
            return SHARED
        known = [*NAMED_TYPES, *self._structs]
        meant = did_you_mean(name, known)
        structs = ", ".join(self._structs) or "none"
        self._report(
            spot.problem(
                f"there is no type {name!r}{meant}; there are the types of values, and the structs: {structs}"
            )
        )
        return None

    def _struct(self, name: str, spot: Spot) -> ValueType | None:
        if name in self._found:
            return self._found[name]
        if name in self._open:
            circle = " has a field of ".join([*self._open[self._open.index(name) :], name])
            self._report(spot.problem(f"a struct cannot have itself as a field: {circle}"))
            return None
        self._open.append(name)
        there = self._structs[name]
        types, self._types = self._types, there.types
        found = self._found[name] = self._fields(name, there.spot)
        self._types = types
        self._open.pop()
        return found

    def _inner(self, spot: Spot) -> ValueType | None:
        if len(self._open) > STRUCT_DEPTH_MAX:
            self._report(spot.problem(f"structs are in each other more than {STRUCT_DEPTH_MAX} deep"))
            return None
        self._open.append("")
        found = self._fields("", spot)
        self._open.pop()
        return found

    def _fields(self, name: str, spot: Spot) -> ValueType | None:
        fields: dict[str, ValueType] = {}
        is_whole = True
        for each in spot.element_spots():
            own = each.get("name")
            kind = self._inner(each) if each.tag == "struct" else self.type_of(each.get("type"), each)
            if own in fields:
                self._report(each.problem(f"the struct has two fields named {own!r}"))
            if kind is None:
                is_whole = False
            else:
                fields[own] = kind
        return struct_type(name, fields.items()) if is_whole else None


def shared_place(name: str) -> str:
    """Return the cleanup place that a type names, "" if it is none of counted values."""
    return name.removeprefix(SHARED_PREFIX) if name.startswith(SHARED_PREFIX) else ""


class Template(Struct, frozen=True, eq=False):
    """A function whose types are said later.

    Attributes:
        name: as written.
        parameters: names of the types.
        defun: the function.
        scope: what names stand for where it is written.
        including: files that were being included there.
    """

    name: str
    parameters: tuple[str, ...]
    defun: Spot
    scope: Scope
    including: tuple[str, ...]


class Scope(Struct, frozen=True, eq=False):
    """What names stand for at some place of a file.

    Attributes:
        types: name of a type -> what it stands for.
        structs: structures, the inner ones last.
        functions: name -> function that a template was made, None if it could not be.
        own_templates: templates of this net.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    structs: tuple[StructSpot, ...] = ()
    functions: Mapping[str, Defun | None] = field(default_factory=dict)
    own_templates: dict[str, Template] = field(default_factory=dict)

    def type_of(self, name: str) -> str:
        """Return what a type stands for."""
        return self.types.get(name.strip(), name.strip())

    def with_structs(self, structs: tuple[StructSpot, ...]) -> Scope:
        """Return a scope with further structures; templates that are defined there are its own."""
        templates = dict(self.own_templates)
        return replace(self, structs=(*self.structs, *structs), own_templates=templates)

    def with_types(self, types: Mapping[str, str]) -> Scope:
        """Return a scope where further names stand for types."""
        return replace(self, types={**self.types, **types})

    def with_function(self, name: str, function: Defun | None) -> Scope:
        """Return a scope with a further function."""
        return replace(self, functions={**self.functions, name: function})


def specialized(spot: Spot, scope: Scope, report: Callable[[Problem], None]) -> tuple[Template, Scope] | None:
    """Return the template of a ``<specialize>``, and what names stand for in it; None if it cannot be."""
    name = spot.get("use")
    template = scope.own_templates.get(name)
    if template is None:
        known = ", ".join(scope.own_templates) or "none"
        meant = did_you_mean(name, scope.own_templates)
        report(spot.problem(f"there is no template {name!r}{meant}; there are: {known}"))
        return None
    types: dict[str, str] = {}
    for each in spot.all("type-map"):
        replaced = each.get("replace")
        if replaced not in template.parameters:
            known = ", ".join(template.parameters) or "none"
            meant = did_you_mean(replaced, template.parameters)
            report(each.problem(f"the template {name!r} has no type {replaced!r}{meant}; there are: {known}"))
        elif replaced in types:
            report(each.problem(f"the type {replaced!r} is replaced twice"))
        types[replaced] = scope.type_of(each.get("with"))
    missing = [each for each in template.parameters if each not in types]
    if missing:
        report(spot.problem(f"the template {name!r} needs a <type-map> for: {', '.join(missing)}"))
        return None
    return template, template.scope.with_structs(scope.structs).with_types(types)
