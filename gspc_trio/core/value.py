"""Classes of values: two kinds that are made for speed.

Most of what an attrs class costs at the start of a program is to compile the methods that attrs writes for
it, and there are hundreds of classes that say what happened or is to be done. Here all have the same methods,
and the one that makes a value is a copy of the same code with other names in it. For everything else they are
attrs classes: what ``attrs.fields`` returns is found out when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

if TYPE_CHECKING:
    from attrs import frozen
    from attrs import frozen as value
else:
    from functools import cache
    from inspect import get_annotations
    from types import CodeType, FunctionType

    from attrs import define, field
    from attrs.exceptions import FrozenInstanceError

    _Described = type(field())

    def value(cls: type) -> type:
        """Make a class whose values are made by the million: ``attrs.frozen`` to the type checker alone.

        To set a field of a frozen class costs four times as much; a no-op task meets about fifteen values.
        """
        return _make(cls, is_frozen=False)

    def frozen(cls: type) -> type:
        """Make a class as ``attrs.frozen`` does, one of the hundreds that say what happened."""
        return _make(cls, is_frozen=True)

    def _make(cls: type, *, is_frozen: bool) -> type:
        own, annotations = cls.__dict__, get_annotations(cls)
        names = tuple(annotations)
        defaults = {name: own[name] for name in names if name in own}
        if cls.__bases__ != (object,) or any(isinstance(it, _Described) for it in defaults.values()):
            made = define(cls, frozen=is_frozen, repr=False, eq=False)
            made.__repr__, made.__eq__, made.__hash__ = _represent, _is_equal, _hash
            return made
        if tuple(defaults) != names[len(names) - len(defaults) :]:
            raise TypeError(f"{cls.__qualname__}: a field without a default comes after one with")
        body = dict(_FROZEN_METHODS if is_frozen else _METHODS)
        body |= {name: it for name, it in own.items() if name not in {*names, "__dict__", "__weakref__"}}
        body |= {
            "__slots__": names,
            "__match_args__": names,
            "__qualname__": cls.__qualname__,
            "__attrs_attrs__": _Fields(cls.__name__, annotations, defaults),
        }
        made = type(cls.__name__, (), body)
        code = _template(len(names), is_frozen)
        qualified = f"{cls.__qualname__}.__init__"
        scope: dict[str, Any] = {}
        if is_frozen:
            code = code.replace(co_varnames=("self", *names), co_qualname=qualified)
            scope = {f"set_{i}": getattr(made, name).__set__ for i, name in enumerate(names)}
        else:
            code = code.replace(co_varnames=("self", *names), co_names=names, co_qualname=qualified)
        made.__init__ = FunctionType(code, scope, "__init__", tuple(defaults.values()))
        return made

    @cache
    def _template(number: int, is_frozen: bool) -> CodeType:
        """Return the code of an ``__init__`` that sets so many fields; their names are placeholders."""
        sets = [f"set_{i}(self, f{i})" if is_frozen else f"self.f{i} = f{i}" for i in range(number)]
        parameters = ", ".join(["self", *(f"f{i}" for i in range(number))])
        scope: dict[str, Any] = {}
        exec(f"def __init__({parameters}):\n  " + "\n  ".join(sets or ["pass"]), scope)
        return scope["__init__"].__code__

    class _Fields:
        """``__attrs_attrs__`` of a class: asked for, it has attrs say it, once."""

        def __init__(self, name: str, annotations: dict[str, Any], defaults: dict[str, Any]) -> None:
            self._name = name
            self._body = {"__annotations__": annotations, **defaults}

        def __get__(self, instance: object, cls: type) -> Any:
            found = define(type(self._name, (), self._body)).__attrs_attrs__
            cls.__attrs_attrs__ = found
            return found

    def _refuse(_: Any, *__: Any) -> None:
        raise FrozenInstanceError

    def _state(self: Any) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def _set_state(self: Any, state: dict[str, Any]) -> None:
        for name, it in state.items():
            object.__setattr__(self, name, it)


def maker(cls: Callable[P, T]) -> Callable[P, T]:
    """Return a function that makes what ``cls(...)`` makes, in two thirds of the time.

    To call a class is a call into C and another out of it. This is for the few places that make some values
    for every grant.

    Args:
        cls: a class made by :func:`value`.
    """
    given: Any = cls
    names = given.__match_args__
    sets = "".join([f"  made.{name} = {name}\n" for name in names])
    scope: dict[str, Any] = {"new": object.__new__, "cls": cls}
    exec(f"def make({', '.join(names)}):\n  made = new(cls)\n{sets}  return made", scope)
    scope["make"].__defaults__ = given.__init__.__defaults__
    make: Callable[P, T] = scope["make"]
    return make


def _represent(self: Any) -> str:
    fields = ", ".join(f"{it.name}={getattr(self, it.name)!r}" for it in self.__attrs_attrs__ if it.repr)
    return f"{type(self).__qualname__}({fields})"


def _is_equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(getattr(self, it.name) == getattr(other, it.name) for it in self.__attrs_attrs__ if it.eq)


def _hash(self: Any) -> int:
    return hash((type(self), *[getattr(self, it.name) for it in self.__attrs_attrs__ if it.eq]))


if not TYPE_CHECKING:
    _METHODS = {
        "__repr__": _represent,
        "__eq__": _is_equal,
        "__hash__": _hash,
        "__getstate__": _state,
        "__setstate__": _set_state,
    }
    _FROZEN_METHODS = _METHODS | {"__setattr__": _refuse, "__delattr__": _refuse}


__all__ = ["frozen", "maker", "value"]
