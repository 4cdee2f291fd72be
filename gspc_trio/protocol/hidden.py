"""Structures of which some fields show up in no text made of them: no log, traceback or terminal."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct


class HidesFields(Struct, frozen=True):
    """A structure with fields that are secret, or say nothing to people."""

    hidden: ClassVar[frozenset[str]] = frozenset()
    """Their names."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        names = (name for name in self.__struct_fields__ if name not in self.hidden)
        return [(name, getattr(self, name)) for name in names]
