"""Values of tasks as bytes: msgpack where a value comes back equal and of the same exact type, else pickle.

Encoded values travel as opaque bytes; only the user's own processes (job server, compute process) open
pickled ones. Plain data can be told apart and read without pickle: :func:`is_plain`.

For a value that lies in a memory layer a reference travels: the byte that begins a pickled value, then 0,
where a pickled value goes on with 128; then msgpack data. The bytes in the layer are the value's buffers
(pickle protocol 5, out of band), then its pickle; or the plain bytes of a ``bytes`` object; or any other
encoded value; or what a view is to be of.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import chain
from typing import Any, NoReturn, TypeAlias

import msgpack
from msgspec import Struct
from msgspec.msgpack import Decoder

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
ATOMS = frozenset({type(None), bool, int, float, str, bytes})
"""Types of values that hold no others, and never change."""

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
        return _decode(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadValue(f"these {len(data)} bytes are not an encoded value: {error}") from error


def _open_reference(data: bytes | bytearray | memoryview) -> Value:
    """Return a value that lies in a memory layer, if this process takes part in that."""
    reference = decode_reference(data)
    open_data = getattr(data, "open_data", None)
    if open_data is None:
        raise BadValue(
            f"this value lies in a memory layer (data {reference.data_id}), of which this process is no part"
        )
    return gather(reference, open_data(reference.data_id))


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
    if kind in ATOMS:
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
    rest = kinds - ATOMS
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


def _unpack_extension(code: int, data: bytes | memoryview) -> Value:
    if code != _TUPLE:
        raise BadValue(f"unknown extension type {code}")
    return tuple(_decode(data))


_decode = Decoder(ext_hook=_unpack_extension).decode


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


def pickle_reduced(value: object, reducers: Mapping[type, Callable[[Any], Any]]) -> bytes:
    """Return a pickle of a value in which some types are reduced in another way.

    Args:
        value: what to pickle.
        reducers: type -> what ``__reduce__`` of its objects is to return.

    Raises:
        BadValue: it cannot be pickled, not by cloudpickle either.
    """
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5)
    pickler.dispatch_table = {**copyreg.dispatch_table, **reducers}
    try:
        pickler.dump(value)
    except RAISED_BY_USERS:
        return _cloudpickle(value, None, reducers)
    data = stream.getvalue()
    return _cloudpickle(value, None, reducers) if b"__main__" in data or modules_by_value() else data


PICKLER = "cloudpickle.cloudpickle"
"""Module that pickles what cannot be imported."""


def modules_by_value() -> Set[str]:
    """Return the names of modules that the user wants to be pickled instead of imported elsewhere.

    They are those that ``cloudpickle.register_pickle_by_value`` was given.
    """
    cloudpickle = sys.modules.get(PICKLER)
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


def _cloudpickle(
    value: object,
    buffers: list[memoryview] | None,
    reducers: Mapping[type, Callable[[Any], Any]] | None = None,
) -> bytes:
    import cloudpickle

    take = None
    if buffers is not None:
        buffers.clear()
        take = _taker(buffers)
    try:
        stream = io.BytesIO()
        pickler = cloudpickle.Pickler.__new__(cloudpickle.Pickler)
        if reducers is not None:  # before it is initialized, which is when it looks at them
            pickler.dispatch_table = ChainMap(dict(reducers), pickler.dispatch_table)
        pickler.__init__(stream, protocol=5, buffer_callback=take)
        pickler.dump(value)
    except RAISED_BY_USERS as error:
        kind = type(value).__name__
        advice = _ADVICE.get(kind, "")
        raise BadValue(
            f"a value of type {kind} cannot be sent to another process: {text_of(error)}{advice}"
        ) from error
    return stream.getvalue()


def text_of(error: BaseException) -> str:
    """What an exception of the user's code says; its name if that is nothing, or raises."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def refuse_future(_future: object) -> NoReturn:
    """Stand for ``__reduce__`` of the futures of tasks: say where a future may be, not that it has a lock.

    Raises:
        TypeError: always.
    """
    raise TypeError(
        "it is or holds the future of a task, which stands for its result only as an argument of a task, "
        "also in lists, tuples, sets and dicts"
    )


_ADVICE = {
    "coroutine": "; run it with trio.run or asyncio.run",
    "generator": "; make a list of what it yields",
}
"""What to do about values that are returned by mistake: type -> advice."""


# References ----

ALIGNMENT_BYTES = 64
"""Buffers begin at multiples of this: arrays want it."""

_MARK = b"\xc1\x00"
RAW, _PICKLE, _ENCODED, _VIEW = range(4)


class Reference(Struct, frozen=True):
    """Where a value lies.

    Attributes:
        data_id: of the data in the layer.
        size_bytes: of the data.
        places: (host, bytes) where it lay when the reference was made.
        kind: what the bytes are.
        ends: where each buffer begins and ends; the pickle is behind the last one.
    """

    data_id: str
    size_bytes: int
    places: tuple[tuple[str, int], ...]
    kind: int
    ends: tuple[tuple[int, int], ...] = ()


class TrackedReference(bytes):
    """A reference in the process of the job server: as long as it lives, so does the data.

    Attributes:
        reference: what it says.
        keep: what lets the data go when nobody has it any more.
        open_data: returns the memory of data, mapped for reading; blocks.
    """

    reference: Reference
    keep: Value
    open_data: Callable[[str], memoryview]


def is_reference(data: bytes) -> bool:
    """Return whether an encoded value is a reference."""
    return data[:2] == _MARK


def encode_reference(reference: Reference) -> bytes:
    """Return what travels instead of a value."""
    fields = (reference.data_id, reference.size_bytes, reference.places, reference.kind, reference.ends)
    packed: bytes = msgpack.packb(fields)
    return _MARK + packed


def decode_reference(data: bytes | bytearray | memoryview) -> Reference:
    """Return what :func:`encode_reference` was given.

    Raises:
        BadValue: the bytes are no reference.
    """
    try:
        data_id, size_bytes, places, kind, ends = msgpack.unpackb(memoryview(data)[2:], use_list=False)
        return Reference(data_id, size_bytes, places, kind, ends)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise BadValue(f"these {len(data)} bytes are not a reference: {error}") from error


def bytes_reference(data_id: str, size_bytes: int, host: str) -> bytes:
    """Return what travels instead of a ``bytes`` object whose bytes are the data."""
    return encode_reference(Reference(data_id, size_bytes, ((host, size_bytes),), RAW))


def is_range(reference: Reference) -> bool:
    """Return whether it stands for a range of data that somebody else keeps."""
    return reference.kind == _VIEW


def is_encoded(reference: Reference) -> bool:
    """Return whether its bytes are an encoded value, such as a list."""
    return reference.kind == _ENCODED


def encoded_reference(data_id: str, size_bytes: int, host: str) -> bytes:
    """Return what travels instead of a value whose encoding is the data."""
    return encode_reference(Reference(data_id, size_bytes, ((host, size_bytes),), _ENCODED))


def plain_range(reference: Reference) -> tuple[int, int]:
    """Return (offset, size) of what a reference to a ``bytes`` object or a range stands for.

    Raises:
        BadValue: it stands for another value.
    """
    if reference.kind == RAW:
        return 0, reference.size_bytes
    if reference.kind == _VIEW:
        ((begin, end),) = reference.ends
        return begin, end - begin
    raise BadValue("it is neither bytes nor a range of data")


class Spread(Struct, frozen=True):
    """A value taken apart.

    Attributes:
        kind: what the bytes are.
        pieces: to be written one after another; the last one is the pickle, if it is one.
        ends: where each buffer begins and ends.
        buffers: those of the pieces.
    """

    kind: int
    pieces: list[memoryview]
    ends: tuple[tuple[int, int], ...] = ()
    buffers: tuple[memoryview, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all pieces."""
        return sum(piece.nbytes for piece in self.pieces)

    def reference(self, data_id: str, host: str) -> bytes:
        """Return what travels, once the pieces lie in the layer."""
        places = ((host, self.size_bytes),)
        return encode_reference(Reference(data_id, self.size_bytes, places, self.kind, self.ends))


class Placed(Struct, frozen=True):
    """A range of data in a memory layer as a value: a task that is given it sees read-only memory.

    Attributes:
        data_id, offset, size_bytes: the range.
        data_bytes: the size of the data.
        places: (host, bytes of the range there).
    """

    data_id: str
    offset: int
    size_bytes: int
    data_bytes: int
    places: tuple[tuple[str, int], ...] = ()

    def encoded(self) -> bytes:
        """Return what travels."""
        ends = ((self.offset, self.offset + self.size_bytes),)
        return encode_reference(Reference(self.data_id, self.data_bytes, self.places, _VIEW, ends))


def spread(value: object, bytes_min: int) -> Spread | bytes:
    """Take a large value apart without copying its buffers; return a small one encoded.

    Raises:
        BadValue: it cannot be sent to another process.
    """
    if type(value) is memoryview:
        if value.nbytes >= bytes_min and value.c_contiguous:
            return Spread(RAW, [value.cast("B")])
        value = bytes(value)
    if type(value) is bytes:
        return Spread(RAW, [memoryview(value)]) if len(value) >= bytes_min else dumps(value)
    data = dumps_plain(value)
    if data is not None:
        return Spread(_ENCODED, [memoryview(data)]) if len(data) >= bytes_min else data
    buffers: list[memoryview] = []
    stream = pickle_with(value, buffers)
    if not buffers and len(stream) < bytes_min:
        return pickled(stream)
    if sum(buffer.nbytes for buffer in buffers) + len(stream) < bytes_min:
        return dumps(value)
    pieces: list[memoryview] = []
    ends = []
    position = 0
    for buffer in buffers:
        padding = -position % ALIGNMENT_BYTES
        if padding:
            pieces.append(memoryview(bytes(padding)))
        begin = position + padding
        position = begin + buffer.nbytes
        ends.append((begin, position))
        pieces.append(buffer)
    pieces.append(memoryview(stream))
    return Spread(_PICKLE, pieces, tuple(ends), tuple(buffers))


def gather(reference: Reference, view: memoryview) -> Value:
    """Return the value whose data is ``view``; its buffers are parts of that, not copies.

    Raises:
        BadValue: the data is not what the reference says.
        Exception: whatever opening a pickled value raises.
    """
    if len(view) != reference.size_bytes:
        raise BadValue(f"{len(view)} bytes of data for a reference to {reference.size_bytes}")
    if reference.kind == RAW:
        return bytes(view)
    if reference.kind == _ENCODED:
        return loads(view)
    if reference.kind == _VIEW:
        ((begin, end),) = reference.ends
        whole = begin == 0 and end == len(view)
        return open_published(view) if whole else view[begin:end]
    if reference.kind != _PICKLE:
        raise BadValue(f"a reference of a kind ({reference.kind}) that does not exist")
    end = reference.ends[-1][1] if reference.ends else 0
    return pickle.loads(view[end:], buffers=[view[begin:end] for begin, end in reference.ends])


# Published values ----

_PUBLISHED = b"\xc1\1gspc-value-01\0"
"""Begins published data that is an encoded value; the length of what says how follows, and that."""


def published_pieces(value: object) -> list[memoryview]:
    """Return a value as the pieces of published data: bytes as they are, anything else with a beginning.

    Raises:
        BadValue: it cannot be sent to another process.
    """
    if isinstance(value, bytes | bytearray | memoryview) and len(value):
        view = memoryview(value)
        return [view.cast("B")] if view.c_contiguous else [memoryview(view.tobytes())]
    parts = spread(value, 0)
    assert isinstance(parts, Spread), "nothing is small here"
    how: bytes = msgpack.packb((parts.kind, parts.ends))
    begin = _PUBLISHED + len(how).to_bytes(4, "big") + how
    return [memoryview(begin + bytes(-len(begin) % ALIGNMENT_BYTES)), *parts.pieces]


def open_published(view: memoryview) -> Value:
    """Return the value that published data stands for; plain bytes as read-only memory.

    Raises:
        BadValue: the data is not what its beginning says.
        Exception: whatever opening a pickled value raises.
    """
    mark = len(_PUBLISHED)
    if view[:mark] != _PUBLISHED:
        return view
    end = mark + 4 + int.from_bytes(view[mark : mark + 4], "big")
    try:
        kind, ends = msgpack.unpackb(view[mark + 4 : end], use_list=False)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise BadValue(f"these {len(view)} bytes are no published value: {error}") from error
    body = view[end + -end % ALIGNMENT_BYTES :]
    return gather(Reference("", len(body), (), kind, ends), body)
