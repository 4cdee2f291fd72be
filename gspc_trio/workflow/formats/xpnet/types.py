"""Types of values of xpnet: what a place, a port, a field of a struct and an expression have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

INTEGRAL_RANGES = {
    "int": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
    "uint": (0, 2**32 - 1),
    "ulong": (0, 2**64 - 1),
}
"""Kind of whole numbers -> smallest and largest."""

INTEGRAL = (*INTEGRAL_RANGES, "bigint")
FRACTIONAL = ("float", "double")
NUMERIC = (*INTEGRAL, *FRACTIONAL)

KINDS = (
    *("control", "bool", "int", "long", "uint", "ulong", "float", "double", "char", "string"),
    *("bitset", "bytearray", "bigint", "shared", "list", "set", "map", "struct"),
)
"""Kinds of values, in the order in which values of different kinds are sorted."""

_SPELLED = {"uint": "unsigned int", "ulong": "unsigned long"}


class ValueType(Struct, frozen=True):
    """The type of a value.

    Elements of lists, sets and maps may be of any types.

    Attributes:
        kind: one of :data:`KINDS`, or ``any``: that is seen when the expression runs.
        name: of a struct that has one, "" else. Structs of the same fields are of the same type.
        fields: name and type of the fields of a struct.
    """

    kind: str
    name: str = ""
    fields: tuple[tuple[str, ValueType], ...] = ()

    def __str__(self) -> str:
        if self.kind != "struct":
            return _SPELLED.get(self.kind, self.kind)
        if self.name:
            return f"struct {self.name}"
        return "struct {" + ", ".join(f"{name}: {kind}" for name, kind in self.fields) + "}"

    def field(self, name: str) -> ValueType | None:
        """Return the type of a field, None if there is none."""
        return dict(self.fields).get(name)


ANY = ValueType("any")
CONTROL, BOOL, STRING = ValueType("control"), ValueType("bool"), ValueType("string")
INT, LONG, UINT, ULONG, BIGINT = (ValueType(kind) for kind in INTEGRAL)
FLOAT, DOUBLE = (ValueType(kind) for kind in FRACTIONAL)
CHAR, BITSET, BYTEARRAY, SHARED = (ValueType(kind) for kind in ("char", "bitset", "bytearray", "shared"))
LIST, SET, MAP = ValueType("list"), ValueType("set"), ValueType("map")

NAMED_TYPES: Mapping[str, ValueType] = {
    **{kind: ValueType(kind) for kind in KINDS if kind != "struct"},
    **{spelled: ValueType(kind) for kind, spelled in _SPELLED.items()},
}
"""How a file calls a type -> the type; structs have names of their own."""


def struct_type(name: str, fields: Iterable[tuple[str, ValueType]]) -> ValueType:
    """Return the type of structs with these fields.

    Args:
        name: of the struct, "" if it has none.
        fields: name and type of each, in their order.
    """
    return ValueType("struct", name, tuple(fields))


def fits(found: ValueType, wanted: ValueType) -> bool:
    """Return whether a value of one type can be one of the other; ``any`` is seen when it is there."""
    if "any" in (found.kind, wanted.kind):
        return True
    if found.kind != wanted.kind:
        return False
    have, want = dict(found.fields), dict(wanted.fields)
    return have.keys() == want.keys() and all(fits(kind, want[name]) for name, kind in have.items())


def difference(found: ValueType, wanted: ValueType) -> str:
    """Return what to say where two types do not fit: for structs which fields differ."""
    if found.kind == wanted.kind == "struct":
        have, want = dict(found.fields), dict(wanted.fields)
        for name in want.keys() - have.keys():
            return f"the field {name} is missing"
        for name in have.keys() - want.keys():
            return f"there is no field {name}"
        for name, kind in have.items():
            if not fits(kind, want[name]):
                return f"the field {name}: {difference(kind, want[name])}"
    return f"{found} instead of {wanted}"
