"""Hooks of the codec: values become arrays and come back, with the type of every field checked.

cattrs finds the hook for each type once; the hooks are ours. A class is the array of its fields in order,
trailing ones left out while they have their default (so fields may be appended). A field of a wrong type
raises :class:`BadField`, so that nothing wrongly typed reaches a machine. So does a number that is not finite
or that is larger than ``limits.NUMBER_MAX``, and a value outside of what its type states
(``Annotated[int, msgspec.Meta(ge=0)]``).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import attrs
from cattrs import Converter
from msgspec import NODEFAULT, Meta, Struct, structs

from gspc_trio.protocol.limits import NUMBER_MAX

Kind: TypeAlias = Any
"""A type, or what ``typing`` makes of types."""

Decoded: TypeAlias = Any
"""What msgpack has decoded, and nothing has checked yet; or a value that is to be encoded."""

Read: TypeAlias = Callable[[Decoded, Kind], Decoded]
Write: TypeAlias = Callable[[Decoded], Decoded]

_Factory: TypeAlias = Callable[[Kind, Converter], Decoded]

_EXACT = (str, bytes, bool)


class BadField(ValueError):
    """A field has a wrong type or a value that does not exist."""


def make_converter(unions: Mapping[Kind, tuple[type, ...]] = types.MappingProxyType({})) -> Converter:
    """Return a converter with these hooks.

    Args:
        unions: union type -> its members in the order of their numbers on the wire.
    """
    converter = Converter(detailed_validation=False)
    rules: list[tuple[Callable[[Any], bool], _Factory, _Factory]] = [
        (lambda kind: get_origin(kind) is Annotated, _limited_reader, _limited_writer),
        (lambda kind: get_origin(kind) is tuple, _tuple_reader, _tuple_writer),
        (lambda kind: get_origin(kind) is dict, _dict_reader, _dict_writer),
        (lambda kind: get_origin(kind) is frozenset, _set_reader, _set_writer),
        (_is_optional, _optional_reader, _optional_writer),
        (
            lambda kind: kind in unions,
            lambda kind, converter: tagged_reader(unions[kind], converter),
            lambda kind, converter: tagged_writer(unions[kind], converter),
        ),
        (
            lambda kind: isinstance(kind, type) and (issubclass(kind, Struct) or attrs.has(kind)),
            class_reader,
            class_writer,
        ),
    ]
    for kind in _EXACT:  # cattrs would convert what is of another type
        converter.register_structure_hook(kind, _exact_reader(kind))
        converter.register_unstructure_hook(kind, as_it_is)
    converter.register_structure_hook(int, _read_int)
    converter.register_unstructure_hook(int, _write_int)
    converter.register_structure_hook(float, _read_float)
    converter.register_unstructure_hook(float, _write_float)
    for applies, reader, writer in rules:
        converter.register_structure_hook_factory(applies, reader)
        converter.register_unstructure_hook_factory(applies, writer)
    return converter


# Classes ----


def class_reader(kind: Kind, converter: Converter) -> Read:
    """Return the hook that makes a value from the array of its fields."""
    names, hints, defaults = _fields_of(kind)
    required = len(names) - len(defaults)
    fields = [(hint if hint in _EXACT else None, converter.get_structure_hook(hint), hint) for hint in hints]
    total = len(names)

    def read(data: Decoded, _: Decoded) -> Decoded:
        if type(data) is not tuple or not required <= len(data) <= total:
            raise BadField(f"{kind.__name__}: not an array of {required} to {total} fields")
        values = []
        try:
            for value, (exact, reader, hint) in zip(data, fields, strict=False):
                values.append(value if type(value) is exact else reader(value, hint))
        except BadField as error:
            raise BadField(f"{kind.__name__}.{names[len(values)]}: {error}") from None
        return kind(*values)

    return read


def class_writer(kind: Kind, converter: Converter) -> Write:
    """Return the hook that makes the array of an instance's fields."""
    names, hints, defaults = _fields_of(kind)
    required = len(names) - len(defaults)
    writers = [converter.get_unstructure_hook(hint) for hint in hints]
    special = [(place, writer) for place, writer in enumerate(writers) if writer is not as_it_is]

    def write(message: Decoded) -> list[Decoded]:
        values = [getattr(message, name) for name in names]
        while len(values) > required and values[-1] == defaults[len(values) - 1 - required]:
            values.pop()
        for place, writer in special:
            if place < len(values):
                values[place] = writer(values[place])
        return values

    return write


def _fields_of(kind: Kind) -> tuple[tuple[str, ...], tuple[Decoded, ...], tuple[Decoded, ...]]:
    """Return names and types of all fields, and the defaults of the last ones."""
    hints = get_type_hints(kind, include_extras=True)
    names: tuple[str, ...] = kind.__match_args__
    if issubclass(kind, Struct):
        optional = [field for field in structs.fields(kind) if not field.required]
        given = [it.default if it.default_factory is NODEFAULT else it.default_factory() for it in optional]
    else:
        given = [field.default for field in attrs.fields(kind) if field.default is not attrs.NOTHING]
    return names, tuple(hints[name] for name in names), tuple(given)


# Unions ----


def tagged_reader(members: tuple[type, ...], converter: Converter) -> Read:
    """Return the hook that reads ``[number of the member, field, ...]``."""
    readers = tuple(converter.get_structure_hook(member) for member in members)
    count = len(members)

    def read(data: Decoded, _: Decoded) -> Decoded:
        if type(data) is not tuple or not data:
            raise BadField("not a message")
        number = data[0]
        if type(number) is not int or not 0 <= number < count:
            raise BadField(f"no message has the number {number!r:.40}")
        return readers[number](data[1:], members[number])

    return read


def tagged_writer(members: tuple[type, ...], converter: Converter) -> Write:
    """Return the hook that writes ``[number of the member, field, ...]``."""
    writers = {
        member: (number, converter.get_unstructure_hook(member)) for number, member in enumerate(members)
    }

    def write(message: Decoded) -> tuple[Decoded, ...]:
        number, writer = writers[type(message)]
        return (number, *writer(message))

    return write


def _is_optional(kind: Any) -> bool:
    return (
        get_origin(kind) in (Union, types.UnionType)
        and len(get_args(kind)) == 2
        and type(None) in get_args(kind)
    )


def _optional_reader(kind: Kind, converter: Converter) -> Read:
    (inner,) = (member for member in get_args(kind) if member is not type(None))
    reader = converter.get_structure_hook(inner)
    return lambda data, _: None if data is None else reader(data, inner)


def _optional_writer(kind: Kind, converter: Converter) -> Write:
    (inner,) = (member for member in get_args(kind) if member is not type(None))
    writer = converter.get_unstructure_hook(inner)
    if writer is as_it_is:
        return as_it_is
    return lambda value: None if value is None else writer(value)


# Containers ----


def _tuple_reader(kind: Kind, converter: Converter) -> Read:
    members = get_args(kind)
    if len(members) == 2 and members[1] is Ellipsis:
        member = members[0]
        reader = converter.get_structure_hook(member)
        exact = {member} if member in _EXACT else set()

        def read_many(data: Decoded, _: Decoded) -> tuple[Decoded, ...]:
            if type(data) is not tuple:
                raise BadField(f"not an array but {_name(data)}")
            if exact.issuperset(map(type, data)):
                return data
            return tuple([reader(value, member) for value in data])

        return read_many
    readers = tuple((converter.get_structure_hook(member), member) for member in members)

    def read_fixed(data: Decoded, _: Decoded) -> tuple[Decoded, ...]:
        if type(data) is not tuple or len(data) != len(readers):
            raise BadField(f"not an array of {len(readers)} elements")
        return tuple([reader(value, member) for (reader, member), value in zip(readers, data, strict=True)])

    return read_fixed


def _tuple_writer(kind: Kind, converter: Converter) -> Write:
    members = get_args(kind)
    writers = [converter.get_unstructure_hook(member) for member in members if member is not Ellipsis]
    if all(writer is as_it_is for writer in writers):
        return as_it_is
    if members[-1] is Ellipsis:
        (writer,) = writers
        return lambda value: [writer(element) for element in value]
    return lambda value: [write(element) for write, element in zip(writers, value, strict=True)]


def _set_reader(kind: Kind, converter: Converter) -> Read:
    """Return the hook for a set: an array of its elements in rising order, each once."""
    (member,) = get_args(kind)
    reader = converter.get_structure_hook(member)

    def read(data: Decoded, _: Decoded) -> frozenset[Decoded]:
        if type(data) is not tuple:
            raise BadField(f"not an array but {_name(data)}")
        found = frozenset([reader(value, member) for value in data])
        if len(found) != len(data):
            raise BadField("an element is there twice")
        return found

    return read


def _set_writer(kind: Kind, converter: Converter) -> Write:
    (member,) = get_args(kind)
    writer = converter.get_unstructure_hook(member)
    return lambda value: [writer(element) for element in sorted(value)]


def _dict_reader(kind: Kind, converter: Converter) -> Read:
    key_type, value_type = get_args(kind)
    read_key = converter.get_structure_hook(key_type)
    read_value = converter.get_structure_hook(value_type)

    def read(data: Decoded, _: Decoded) -> dict[Decoded, Decoded]:
        if type(data) is not dict:
            raise BadField(f"not a map but {_name(data)}")
        return {read_key(key, key_type): read_value(value, value_type) for key, value in data.items()}

    return read


def _dict_writer(kind: Kind, converter: Converter) -> Write:
    key_type, value_type = get_args(kind)
    write_key = converter.get_unstructure_hook(key_type)
    write_value = converter.get_unstructure_hook(value_type)
    if write_key is as_it_is and write_value is as_it_is:
        return as_it_is
    return lambda value: {write_key(key): write_value(element) for key, element in value.items()}


# Limits ----


def _limited_reader(kind: Kind, converter: Converter) -> Read:
    """Return the hook for a type that states what is allowed of its values."""
    inner, *said = get_args(kind)
    reader = converter.get_structure_hook(inner)
    (meta,) = (one for one in said if isinstance(one, Meta))
    least, most = meta.ge, meta.le
    shortest = meta.min_length

    def read(data: Decoded, _: Decoded) -> Decoded:
        value = reader(data, inner)
        if (least is not None and value < least) or (most is not None and value > most):
            raise BadField(f"{value} is not within {least} to {most}")
        if shortest is not None and len(value) < shortest:
            raise BadField(f"{len(value)} elements, there must be {shortest} or more")
        return value

    return read


def _limited_writer(kind: Kind, converter: Converter) -> Write:
    writer: Write = converter.get_unstructure_hook(get_args(kind)[0])
    return writer


# Leaves ----


def as_it_is(value: Decoded) -> Decoded:
    """Write what msgpack knows by itself."""
    return value


def _exact_reader(expected: type) -> Read:
    def read(data: Decoded, kind: Kind) -> Decoded:
        if type(data) is not expected:
            raise BadField(f"not {expected.__name__} but {_name(data)}")
        # cattrs hands subclasses to the hook of their base: StrEnum to that of str.
        return data if kind is expected else _member(kind, data)

    return read


def _read_int(data: Decoded, _: Decoded) -> int:
    if type(data) is not int:
        raise BadField(f"not int but {_name(data)}")
    return _write_int(data)


def _write_int(value: int) -> int:
    """Return a number that may travel: neither end sends what the other refuses."""
    if not -NUMBER_MAX <= value <= NUMBER_MAX:
        raise BadField(f"{value} is larger than any number may be ({NUMBER_MAX})")
    return value


def _read_float(data: Decoded, _: Decoded) -> float:
    if type(data) is not float and type(data) is not int:
        raise BadField(f"not float but {_name(data)}")
    return _write_float(float(data))


def _write_float(value: float) -> float:
    """Return a number that may travel: it is finite."""
    if not -NUMBER_MAX <= value <= NUMBER_MAX:
        raise BadField(f"{value} is no finite number of at most {NUMBER_MAX}")
    return value


def _member(kind: type[Enum], data: Decoded) -> Enum:
    try:
        return kind(data)
    except ValueError:
        raise BadField(f"no {kind.__name__} is {data!r:.40}") from None


def _name(data: Decoded) -> str:
    return {tuple: "array", dict: "map", type(None): "nil"}.get(type(data), type(data).__name__)
