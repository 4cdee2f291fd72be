"""Errors of the memory layer: each names what was asked and what there is; nothing was changed."""

from __future__ import annotations


class ImlError(Exception):
    """The memory layer cannot do what was asked."""


class BadRange(ImlError):
    """A range that does not lie within its data, or is empty."""


class BadSize(ImlError):
    """A size below 1."""


class BadLayout(ImlError):
    """A layout that contradicts itself, or needs more hosts than there are."""


class UnknownData(ImlError):
    """There is no such data: the id was never given, or it was freed."""


class DuplicateData(ImlError):
    """There is data of this id or name already."""


class UnknownName(ImlError):
    """Nothing was published under this name."""


class UnknownHost(ImlError):
    """The layer has no server on this host, or none of this rank."""


class WrongJob(ImlError):
    """The data belongs to another job and is not published."""


class NoRoom(ImlError):
    """A host has no room for the data, in memory or on disk."""


class DataLost(ImlError):
    """The data was lost with the hosts that held it."""


class LayerGone(ImlError):
    """The memory layer, or the server that was asked, is gone."""


_ALL: tuple[type[ImlError], ...] = (
    BadRange, BadSize, BadLayout, UnknownData, DuplicateData, UnknownName, UnknownHost, WrongJob, NoRoom,
    DataLost, LayerGone,
)  # fmt: skip
_BY_NAME = {kind.__name__: kind for kind in _ALL}


def error_of(kind: str, message: str) -> ImlError:
    """Return the error that another process has named by its type and message."""
    return _BY_NAME.get(kind, ImlError)(message)
