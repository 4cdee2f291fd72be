"""Snapshot of a function that travels by value, to tell whether it has changed since.

Looking at every part anew costs less than a microsecond for most functions; pickling them costs fifty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    EllipsisType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
    NotImplementedType,
    WrapperDescriptorType,
)
from typing import Any

from gspc_trio.compute.code import is_importable, travels_by_name
from gspc_trio.core.code_identity import global_names

LEAF_BYTES_MAX = 1 << 16
"""A function with a longer text among its parts is not kept."""

ELEMENTS_MAX = 100
"""A container with more elements is not looked through: pickling it costs no more."""

PARTS_MAX = 2_000
"""Nor is what has more parts than these."""

_ATOMS = frozenset({NoneType, bool, int, float, complex, EllipsisType, NotImplementedType, CodeType})
_DESCRIPTORS = frozenset(
    {
        ClassMethodDescriptorType,
        GetSetDescriptorType,
        MemberDescriptorType,
        MethodDescriptorType,
        WrapperDescriptorType,
    }
)
_IMMUTABLE = frozenset(
    {
        ("dataclasses", "_HAS_DEFAULT_FACTORY_CLASS"),
        ("dataclasses", "_MISSING_TYPE"),
        ("datetime", "date"),
        ("datetime", "datetime"),
        ("datetime", "time"),
        ("datetime", "timedelta"),
        ("datetime", "timezone"),
        ("decimal", "Decimal"),
        ("fractions", "Fraction"),
        ("logging", "Logger"),  # it travels as its name
        ("pathlib", "PosixPath"),
        ("pathlib", "PurePosixPath"),
        ("pathlib._local", "PosixPath"),  # in Python 3.13
        ("pathlib._local", "PurePosixPath"),
        ("re", "Pattern"),
        ("types", "GenericAlias"),
        ("uuid", "UUID"),
    }
)
"""Types of other modules whose instances nobody changes: (module, name)."""

_MISSING = object()


class Snapshot:
    """The parts of a function as they were when it was taken.

    These are its code, defaults, attributes and cells, the globals that it uses, and their parts in turn.
    Names, docstrings and annotations are no parts, for they change nothing that it does.

    Attributes:
        has_containers: whether there are lists, dicts or sets among them, which a task could change.
    """

    def __init__(self) -> None:
        self.has_containers = False
        self._functions: list[tuple[FunctionType, CodeType, object, object, int]] = []
        self._cells: list[tuple[CellType, object]] = []
        self._entries: list[tuple[Callable[[str, object], object], str, object]] = []
        self._containers: list[
            tuple[Callable[[], Iterable[object]], tuple[object, ...], tuple[int, ...]]
        ] = []

    def holds(self) -> bool:
        """Return whether every part is still the same."""
        for function, code, defaults, keyword_defaults, attributes in self._functions:
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not keyword_defaults
                or len(function.__dict__) != attributes
            ):
                return False
        for get, name, value in self._entries:
            if get(name, _MISSING) is not value:
                return False
        for cell, value in self._cells:
            try:
                if cell.cell_contents is not value:
                    return False
            except ValueError:  # empty
                return False
        return all(tuple(map(id, read())) == ids for read, _, ids in self._containers)

    def check(self) -> Callable[[], bool]:
        """Return what does the same as :meth:`holds`, in half the time for a function that is alone."""
        if len(self._functions) > 1 or self._cells or self._containers:
            return self.holds
        function, code, defaults, keyword_defaults, attributes = self._functions[0]
        if attributes:
            return self.holds
        entries = self._entries
        missing = _MISSING

        def holds() -> bool:
            for get, name, value in entries:
                if get(name, missing) is not value:
                    return False
            return (
                function.__code__ is code
                and function.__defaults__ is defaults
                and function.__kwdefaults__ is keyword_defaults
                and not function.__dict__
            )

        return holds

    def add_function(self, function: FunctionType) -> list[object]:
        """Note a function; return its parts."""
        keyword_defaults, attributes = function.__kwdefaults__, function.__dict__
        self._functions.append(
            (function, function.__code__, function.__defaults__, keyword_defaults, len(attributes))
        )
        parts: list[object] = list(function.__defaults__ or ())
        for namespace in (keyword_defaults or {}, attributes):
            parts += self._add_entries(namespace, namespace)
        parts += self._add_entries(function.__globals__, global_names(function.__code__))
        for cell in function.__closure__ or ():
            self._cells.append((cell, cell.cell_contents))
            parts.append(cell.cell_contents)
        return [part for part in parts if part is not _MISSING]

    def add_class(self, kind: type) -> list[object]:
        """Note a class; return its parts: not the special attributes that are no functions."""
        namespace = kind.__dict__
        self.add_container(namespace.keys, tuple(namespace))
        self._add_entries(namespace, namespace)
        items = tuple(namespace.items())
        own = [value for name, value in items if not _is_special(name) or _is_method(value)]
        return [*own, *kind.__bases__, type(kind)]

    def add_container(self, read: Callable[[], Iterable[object]], elements: tuple[object, ...]) -> None:
        """Note what a container holds; the elements are kept, lest others get their ids."""
        self._containers.append((read, elements, tuple(map(id, elements))))

    def _add_entries(self, namespace: Mapping[str, object], names: Iterable[str]) -> list[object]:
        get = namespace.get
        values = [(name, get(name, _MISSING)) for name in tuple(names)]  # another thread may add some
        self._entries += [(get, name, value) for name, value in values]
        return [value for _, value in values]


def take_snapshot(function: FunctionType) -> Snapshot | None:
    """Return the parts of a function, or None if among them is something whose state cannot be compared."""
    snapshot = Snapshot()
    pending: list[object] = [function]
    seen: set[int] = set()
    while pending:
        part = pending.pop()
        if type(part) in _ATOMS or id(part) in seen:
            continue
        seen.add(id(part))
        try:
            parts = _take(part, snapshot)
        except ValueError:  # an empty cell
            return None
        if parts is None or len(seen) > PARTS_MAX:
            return None
        pending += parts
    return snapshot


def _take(part: Any, snapshot: Snapshot) -> Iterable[object] | None:
    """Note a part; return its own parts, or None if it can change without our seeing it."""
    kind = type(part)
    if kind is str or kind is bytes:
        return () if len(part) <= LEAF_BYTES_MAX else None
    if kind is tuple or kind is frozenset:
        return part if len(part) <= PARTS_MAX else None
    if kind is list or kind is set or kind is dict:
        return _take_container(part, snapshot)
    if issubclass(kind, ModuleType):
        return () if travels_by_name(part) else None
    if is_importable(part):
        return ()
    if kind is FunctionType:
        if part.__globals__.get("__name__") == "dataclasses":
            return ()  # made for a data class; the set in it is empty between calls
        return snapshot.add_function(part)
    if issubclass(kind, type):
        return snapshot.add_class(part)
    return _parts_of_other(part, kind)


def _take_container(part: Any, snapshot: Snapshot) -> Iterable[object] | None:
    if len(part) > ELEMENTS_MAX:
        return None
    snapshot.has_containers = True
    if type(part) is dict:
        keys, elements = tuple(part), tuple(part.values())
        snapshot.add_container(part.keys, keys)
        snapshot.add_container(part.values, elements)
        return (*keys, *elements)
    elements = tuple(part)
    snapshot.add_container(part.__iter__, elements)
    return elements


def _parts_of_other(part: Any, kind: type) -> Iterable[object] | None:
    if kind in _DESCRIPTORS or (kind.__module__, kind.__qualname__) in _IMMUTABLE:
        return ()
    if kind is staticmethod or kind is classmethod:
        return (part.__func__,)
    if kind is property:
        return (part.fget, part.fset, part.fdel)
    if kind is MethodType:
        return (part.__func__, part.__self__)
    if kind is BuiltinFunctionType and isinstance(part.__self__, type | ModuleType):
        return (part.__self__,)
    if type(kind).__module__ == "enum" and is_importable(kind):
        return ()
    return None


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_method(value: object) -> bool:
    return type(value) in (FunctionType, classmethod, staticmethod, property)
