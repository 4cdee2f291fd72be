"""Values of tasks as bytes: msgpack where a value comes back equal and of the same exact type, else pickle.

Encoded values travel as opaque bytes; only the user's own processes (job server, compute process) open
pickled ones. Plain data can be told apart and read without pickle: :func:`is_plain`.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence, Set
from itertools import chain
from typing import Any, TypeAlias

import msgpack

RAISED_BY_USERS = (Exception, SystemExit)
"""What methods of the user's classes may raise while we pickle or print; Ctrl-C is not among it."""

DEPTH_MAX = 64
"""Containers nested deeper than this are pickled."""

BYTES_MAX = (1 << 32) - 1
"""Longest encoded value: messages carry it as one piece."""

LONG_BYTES = 1 << 16
"""Bytes longer than this are worth sparing a copy."""

_TUPLE = 1  # msgpack extension type of a tuple
_PICKLED = b"\xc1"  # the one byte that no msgpack value begins with
_ATOMS = frozenset({type(None), bool, int, float, str, bytes})
_SHORT = frozenset({type(None), bool, int, float})
_packer = msgpack.Packer(autoreset=True)  # for these alone: packing them runs no Python code between
_NO_MODULES: frozenset[str] = frozenset()
_CONTAINERS = frozenset({list, tuple, dict})


Value: TypeAlias = Any
"""What a task of a user takes or returns: anything that can be pickled."""


class BadValue(pickle.PicklingError, ValueError):
    """The value cannot be sent to another process, or the bytes are no encoded value."""


def dumps(value: object) -> bytes:
    """Return ``value`` as bytes.

    Lists, tuples, dicts, str, bytes, int of 64 bits, float, bool and None (exactly these types, nested up to
    DEPTH_MAX) become msgpack; anything else is pickled (protocol 5), by cloudpickle if need be (lambdas,
    classes of ``__main__``). A memoryview is sent as the bytes that it shows.

    Raises:
        BadValue: it cannot be pickled either; the message says why.
    """
    if type(value) in _SHORT:
        try:
            short: bytes = _packer.pack(value)
        except OverflowError:
            pass  # an int beyond 64 bits
        else:
            return short
    if type(value) is memoryview:
        value = bytes(value)
    if type(value) is bytes and LONG_BYTES < len(value) < BYTES_MAX - 5:
        return b"\xc6" + len(value).to_bytes(4, "big") + value  # as msgpack does, but copied only once
    if type(value).__name__ == "Placed":
        from gspc_trio.protocol.references import Placed

        if type(value) is Placed:
            return value.encoded()
    if type(value).__name__ == "Named":
        from gspc_trio.core.staging import Named

        if type(value) is Named:
            raise BadValue(
                f"{value} is published data: a token of a workflow or an argument of an executor that have a "
                "memory layer, and nothing else"
            )
    plain = dumps_plain(value)
    return pickled(pickle_with(value)) if plain is None else plain


def dumps_plain(value: object) -> bytes | None:
    """Return ``value`` as msgpack, or None if that would not bring it back the same."""
    if _is_plain(value, DEPTH_MAX):
        try:
            data = _pack(value)
            if len(data) <= BYTES_MAX:
                return data
        except (_Unpackable, UnicodeEncodeError, ValueError, OverflowError):
            pass  # an int beyond 64 bits, a string with lone surrogates, more than 4 GiB in one piece
    return None


def pickled(stream: bytes) -> bytes:
    """Return a pickle as an encoded value.

    Raises:
        BadValue: it is too long.
    """
    data = _PICKLED + stream
    if len(data) > BYTES_MAX:
        raise BadValue(
            f"a value of {len(data)} bytes is too long to be sent, at most {BYTES_MAX} are possible"
        )
    return data


def loads(data: bytes | bytearray | memoryview) -> Value:
    """Return the value that ``data`` stands for, equal to what :func:`dumps` was given and of the same type.

    Raises:
        BadValue: not an encoded value.
        Exception: whatever opening a pickled value raises, e.g. ImportError for a class that is not there.
    """
    if not data:
        raise BadValue("no bytes: this is not an encoded value")
    if data[0] == _PICKLED[0]:
        if data[1:2] == b"\0":
            return _open_reference(data)
        return pickle.loads(memoryview(data)[1:])
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_unpack_extension)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise BadValue(f"these {len(data)} bytes are not an encoded value: {error}") from error


def _open_reference(data: bytes | bytearray | memoryview) -> Value:
    """Return a value that lies in a memory layer, if this process takes part in that."""
    from gspc_trio.protocol import references

    reference = references.decode_reference(data)
    open_data = getattr(data, "open_data", None)
    if open_data is None:
        raise BadValue(
            f"this value lies in a memory layer (data {reference.data_id}), of which this process is no part"
        )
    return references.gather(reference, open_data(reference.data_id))


def join(parts: Sequence[bytes]) -> bytes:
    """Return what :func:`dumps` would for the list of the values that ``parts`` stand for, without opening
    plain ones.
    """
    if not all(map(is_plain, parts)):
        return dumps([loads(part) for part in parts])
    header: bytes = msgpack.Packer().pack_array_header(len(parts))
    return header + b"".join(parts)


def is_plain(data: bytes) -> bool:
    """Return whether ``data`` can be opened without pickle: conditions and other components may read it."""
    return bool(data) and data[0] != _PICKLED[0]


class _Unpackable(Exception):
    """Met something that msgpack would not bring back the same."""


def _is_plain(value: Value, depth: int) -> bool:
    """Whether all types in ``value`` are exactly msgpack's; types of elements are gathered at C speed."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if depth == 0:
        return False
    if kind is dict:
        kinds = set(map(type, value))
        kinds.update(map(type, value.values()))
    elif kind is list or kind is tuple:
        kinds = set(map(type, value))
    else:
        return False
    rest = kinds - _ATOMS
    if not rest:
        return True
    if not rest <= _CONTAINERS:
        return False
    inner = chain(value, value.values()) if kind is dict else value
    return all(_is_plain(element, depth - 1) for element in inner if type(element) in _CONTAINERS)


def _pack(value: object) -> bytes:
    # A fresh packer, because tuples nest packers and threads share this module; small, because its default
    # buffer costs more to allocate than most values to pack.
    packer = msgpack.Packer(strict_types=True, use_bin_type=True, default=_pack_tuple, buf_size=256)
    packed: bytes = packer.pack(value)
    return packed


def _pack_tuple(value: Value) -> msgpack.ExtType:
    if type(value) is tuple:
        return msgpack.ExtType(_TUPLE, _pack(list(value)))
    raise _Unpackable


def _unpack_extension(code: int, data: bytes) -> Value:
    if code != _TUPLE:
        raise BadValue(f"unknown extension type {code}")
    return tuple(msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_unpack_extension))


def pickle_with(value: object, buffers: list[memoryview] | None = None) -> bytes:
    """Return a pickle of a value; its large buffers go into ``buffers`` instead, if given.

    Raises:
        BadValue: it cannot be pickled, not by cloudpickle either.
    """
    take = None if buffers is None else _taker(buffers)
    try:
        data = pickle.dumps(value, protocol=5, buffer_callback=take)
    except RAISED_BY_USERS:
        return _cloudpickle(value, buffers)
    # By reference, things of __main__ would be looked up in the wrong __main__ on the other side.
    return _cloudpickle(value, buffers) if b"__main__" in data or modules_by_value() else data


def modules_by_value() -> Set[str]:
    """Return the names of modules that the user wants to be pickled instead of imported elsewhere.

    They are those that ``cloudpickle.register_pickle_by_value`` was given.
    """
    cloudpickle = sys.modules.get("cloudpickle.cloudpickle")
    return getattr(cloudpickle, "_PICKLE_BY_VALUE_MODULES", _NO_MODULES)


def _taker(buffers: list[memoryview]) -> Callable[[pickle.PickleBuffer], bool]:
    def take(buffer: pickle.PickleBuffer) -> bool:
        """Leave a buffer out of the pickle, unless it is not contiguous."""
        try:
            buffers.append(buffer.raw())
        except BufferError:
            return True
        return False

    return take


def _cloudpickle(value: object, buffers: list[memoryview] | None) -> bytes:
    import cloudpickle

    take = None
    if buffers is not None:
        buffers.clear()
        take = _taker(buffers)
    try:
        data: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=take)
    except RAISED_BY_USERS as error:
        kind = type(value).__name__
        advice = _ADVICE.get(kind, "")
        raise BadValue(
            f"a value of type {kind} cannot be sent to another process: {text_of(error)}{advice}"
        ) from error
    return data


def text_of(error: BaseException) -> str:
    """What an exception of the user's code says; its name if that is nothing, or raises."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


_ADVICE = {
    "coroutine": "; run it with trio.run or asyncio.run",
    "generator": "; make a list of what it yields",
}
"""What to do about values that are returned by mistake: type -> advice."""
