"""Classes of values: two kinds that are made for speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attrs import frozen
    from attrs import frozen as value
else:
    from attrs import define

    def value(cls: type) -> type:
        """Make a class whose values are made by the million: ``attrs.frozen`` to the type checker.

        A frozen class sets each field through ``object.__setattr__``, which costs 1.1 us for ten fields
        against 0.3 us; a no-op task meets about seven such values.
        """
        return define(cls, unsafe_hash=True)

    def frozen(cls: type) -> type:
        """Make a class as ``attrs.frozen`` does, one of the hundreds that say what happened or is to be done.

        Most of what such a class costs at the start of a program is to compile the methods that attrs writes
        for it. Here all have the same, but for the one that makes a value; those are slower, and seldom used.
        """
        made = define(cls, frozen=True, repr=False, eq=False)
        made.__repr__, made.__eq__, made.__hash__ = _represent, _is_equal, _hash
        return made


def _represent(self: Any) -> str:
    fields = ", ".join(f"{it.name}={getattr(self, it.name)!r}" for it in self.__attrs_attrs__ if it.repr)
    return f"{type(self).__qualname__}({fields})"


def _is_equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(getattr(self, it.name) == getattr(other, it.name) for it in self.__attrs_attrs__ if it.eq)


def _hash(self: Any) -> int:
    return hash((type(self), *[getattr(self, it.name) for it in self.__attrs_attrs__ if it.eq]))


__all__ = ["frozen", "value"]
