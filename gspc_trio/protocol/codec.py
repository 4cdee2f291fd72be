"""Messages to bytes and back: msgpack of a tagged union, in batches (architecture, section 5).

A frame is one msgpack array of items. An item is an array: ``[number of the message's type, field, ...]`` for
a message, and with a negative number an envelope: ``[-1, call_id, message]`` a call, -2 a reply, ``[-3,
call_id, kind, text]`` a failure, ``[-4]`` a heartbeat. Types are numbered by their place in the table handed
in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgpack
from attrs import frozen
from cattrs import Converter
from msgspec import Struct

from gspc_trio.protocol.envelope import ENVELOPE_TYPES, Beat, Call, EncodeError, Failure, Reply
from gspc_trio.protocol.hooks import BadField, Decoded, Kind, Read, Write, make_converter
from gspc_trio.protocol.limits import DEFAULT_LIMITS, KIB, Limits

_CALL, _REPLY, _FAILURE, _BEAT = _ENVELOPES = -1, -2, -3, -4
_BEAT_ITEM = bytes((0x91, 256 + _BEAT))
_BEAT_FRAME = b"\x91" + _BEAT_ITEM
"""Most of the frames on connections that are idle."""

_TEXT_ERRORS = (
    "surrogatepass"  # file names that are not UTF-8 are texts with surrogates; they come back as they were
)


PACKER_BYTES_KEPT = 1024 * KIB
"""A packer's buffer only grows; after a longer message than this it is replaced."""


READ_AGAIN_BYTES_MAX = 4 * KIB
"""A question of so many bytes at most is read again before it is sent: it has few fields, and short ones."""


class DecodeError(ValueError):
    """These bytes are no frame of ours; the message says why, in one line."""


class Encoded(Struct, frozen=True):
    """A message as it travels."""

    data: bytes


@frozen
class Registry:
    """All that may travel, as those say who know the messages.

    Attributes:
        types: of all messages; the place of each is its number.
        unions: union type -> its members in the order of their numbers.
        add_hooks: adds faster hooks for some types to a converter.
        bulk_types: messages that are little more than their last field, which is long; it is copied once.
        checks: type -> a function of a message and the bytes that it may have; it raises an EncodeError for
            one that is too large, before that is encoded.
    """

    types: tuple[type, ...]
    unions: Mapping[Kind, tuple[type, ...]]
    add_hooks: Callable[[Converter], None]
    bulk_types: frozenset[type]
    checks: Mapping[type, Callable[[Decoded, int], None]]


class _Readers(dict[int, tuple[Read, Kind]]):
    """Number of a message -> its hook and type; found when it first comes, since no process sees all."""

    def __init__(self, registry: Registry, converter: Converter) -> None:
        self._types, self._converter = registry.types, converter

    def __missing__(self, number: int) -> tuple[Read, Kind]:
        kind = self._types[number]
        self[number] = found = (self._converter.get_structure_hook(kind), kind)
        return found


class _Writers(dict[type, tuple[int, Write, bool]]):
    """Type of a message -> its number, hook and whether it is in bulk or has a check, likewise."""

    def __init__(self, registry: Registry, converter: Converter) -> None:
        self._numbers = {kind: number for number, kind in enumerate(registry.types)}
        self._converter = converter
        self._special = registry.bulk_types | registry.checks.keys()

    def __missing__(self, kind: type) -> tuple[int, Write, bool]:
        number = self._numbers[kind]
        self[kind] = found = (number, self._converter.get_unstructure_hook(kind), kind in self._special)
        return found


class Codec:
    """Turns messages into bytes and back.

    Args:
        registry: everything that may travel.
        limits: what is accepted, and therefore sent.
    """

    def __init__(self, registry: Registry, limits: Limits = DEFAULT_LIMITS) -> None:
        self.converter: Converter = make_converter(registry.unions)
        converter = self.converter
        registry.add_hooks(converter)
        self.limits = limits
        self._bulk_types, self._checks = registry.bulk_types, registry.checks
        self._types = len(registry.types)
        self._readers, self._writers = _Readers(registry, converter), _Writers(registry, converter)
        self._short_bytes = min(
            PACKER_BYTES_KEPT,
            limits.message_bytes_max,
            limits.array_items_max,
            limits.map_items_max,
            limits.string_bytes_max,
        )
        """An element takes a byte at least: what is no longer than this breaks no limit."""
        self._packer = msgpack.Packer(unicode_errors=_TEXT_ERRORS)

    # Encoding ----

    def encode(self, message: object) -> Encoded:
        """Return the message as it travels.

        Raises:
            EncodeError: its type is not in the table, a field cannot be encoded, or it is too large.
        """
        return Encoded(self._encode(message))

    def encode_question(self, message: object) -> Encoded:
        """Return a message as it travels whose fields may be what a user has given.

        A field of a wrong type is refused here, and not by the other side, which would close the connection.

        Raises:
            EncodeError: as :meth:`encode`, and a field has a wrong type.
        """
        data = self._encode(message)
        if len(data) <= READ_AGAIN_BYTES_MAX:
            try:
                self._decode_item(self._unpack(data))
            except Exception as error:  # as in decoding a batch
                raise EncodeError(f"{type(message).__name__} cannot be sent: {_line(error)}") from error
        return Encoded(data)

    def _encode(self, message: object) -> bytes:
        if type(message) in ENVELOPE_TYPES:
            raise EncodeError(f"{type(message).__name__} is not a message that may travel")
        return self.encode_item(message)

    def _encode_bulk(self, message: object, number: int, write: Write) -> bytes:
        """Encode a message whose last field is long, copying that once; it breaks no limit but one."""
        fields = [number, *write(message)]
        data = fields.pop()
        if type(data) is not bytes or len(data) > self.limits.message_bytes_max - KIB:
            raise EncodeError(
                f"{type(message).__name__} with more data than a message can carry, or with none"
            )
        try:
            head = b"".join((bytes((0x91 + len(fields),)), *map(self._packer.pack, fields)))
        except Exception as error:
            self._packer = msgpack.Packer(unicode_errors=_TEXT_ERRORS)
            raise EncodeError(f"{type(message).__name__} cannot be encoded: {error}") from error
        return b"".join((head, b"\xc6", len(data).to_bytes(4, "big"), data))

    def encode_item(self, item: object) -> bytes:
        """Return a message or an envelope as an item of a frame; the body of a call may be encoded already.

        Raises:
            EncodeError: as :meth:`encode`.
        """
        kind = type(item)
        try:
            number, write, is_special = self._writers[kind]
        except KeyError:
            return self._encode_envelope(item)
        if is_special:
            if kind in self._bulk_types:
                return self._encode_bulk(item, number, write)
            self._checks[kind](item, self.limits.message_bytes_max - KIB)
        try:
            data: bytes = self._packer.pack((number, *write(item)))
        except Exception as error:  # whatever msgpack and attribute access make of wrong fields
            self._packer = msgpack.Packer(unicode_errors=_TEXT_ERRORS)
            raise EncodeError(f"{kind.__name__} cannot be encoded: {error}") from error
        if len(data) > self._short_bytes:
            self._check_size(kind.__name__, data)
        return data

    def _encode_envelope(self, item: Decoded) -> bytes:
        kind = type(item)
        if kind is Call or kind is Reply:
            body = item.body if type(item.body) is Encoded else self.encode(item.body)
            number = bytes((256 + (_CALL if kind is Call else _REPLY),))
            call_id: bytes = self._packer.pack(item.call_id)
            return b"\x93" + number + call_id + body.data
        if kind is Failure:
            texts = [text[: self.limits.handshake_bytes_max] for text in (item.kind, item.message)]
            packed: bytes = self._packer.pack((_FAILURE, item.call_id, *texts))
            return packed
        if kind is Beat:
            return _BEAT_ITEM
        raise EncodeError(f"{kind.__name__} is not a message that may travel")

    def frame(self, items: Sequence[bytes]) -> bytes:
        """Return a frame of encoded items."""
        header: bytes = self._packer.pack_array_header(len(items))
        return b"".join((header, *items))

    def encode_batch(self, items: Iterable[object]) -> bytes:
        """Return a frame of messages and envelopes.

        Raises:
            EncodeError: as :meth:`encode`.
        """
        return self.frame([self.encode_item(item) for item in items])

    def _check_size(self, name: str, data: bytes) -> None:
        """Refuse here what the other side would refuse by closing the connection."""
        limits = self.limits
        if len(data) > PACKER_BYTES_KEPT:
            self._packer = msgpack.Packer(unicode_errors=_TEXT_ERRORS)
        if len(data) > limits.message_bytes_max:
            allowed = f"{limits.message_bytes_max} are allowed: pass large data by file"
            raise EncodeError(f"{name} has {len(data)} bytes, {allowed}")
        try:
            self._unpack(data)
        except Exception as error:  # the text of msgpack's error names the limit
            raise EncodeError(f"{name} is too large: {_line(error)}") from error

    # Decoding ----

    def decode_batch(self, frame: bytes) -> list[object]:
        """Return the messages and envelopes of a frame.

        Raises:
            DecodeError: anything at all is wrong with it.
        """
        if frame == _BEAT_FRAME:
            return [Beat()]
        limits = self.limits
        if len(frame) > limits.frame_bytes_max:
            raise DecodeError(f"a frame of {len(frame)} bytes, {limits.frame_bytes_max} are allowed")
        try:
            items = self._unpack(frame)
        except Exception as error:  # whatever msgpack makes of hostile bytes
            raise DecodeError(f"a frame that is not msgpack within the limits ({_line(error)})") from error
        if type(items) is not tuple or len(items) > limits.frame_items_max:
            raise DecodeError("a frame that is not an array of messages, or of too many")
        try:
            return [self._decode_item(item) for item in items]
        except BadField as error:
            raise DecodeError(f"a message that is none: {_line(error)}") from error
        except Exception as error:  # what classes make of fields that contradict each other
            raise DecodeError(f"a message that contradicts itself: {_line(error)}") from error

    def _unpack(self, data: bytes) -> Decoded:
        limits, size = self.limits, len(data)
        return msgpack.unpackb(
            data,
            use_list=False,
            unicode_errors=_TEXT_ERRORS,
            ext_hook=_no_extension,
            max_str_len=min(limits.string_bytes_max, size),
            max_bin_len=min(limits.message_bytes_max, size),
            max_array_len=min(limits.array_items_max, size),
            max_map_len=min(limits.map_items_max, size),
            max_ext_len=0,
        )

    def _decode_item(self, item: Decoded) -> object:
        if type(item) is tuple and item:
            number = item[0]
            if type(number) is int:
                if 0 <= number < self._types:
                    read, kind = self._readers[number]
                    return read(item[1:], kind)
                if number in _ENVELOPES:
                    return self._decode_envelope(number, item)
            raise BadField(f"no message has the number {number!r:.40}")
        raise BadField("not a message")

    def _decode_envelope(self, number: int, item: tuple[Decoded, ...]) -> object:
        if number == _FAILURE:
            return Failure(*_envelope(item, int, str, str)[1:])
        if number == _BEAT:
            _envelope(item)
            return Beat()
        _, call_id, body = _envelope(item, int, tuple)
        if not body or type(body[0]) is not int or body[0] < 0:
            raise BadField("an envelope without a message")
        return (Call if number == _CALL else Reply)(call_id, self._decode_item(body))


def _envelope(item: tuple[Decoded, ...], *types: type) -> tuple[Decoded, ...]:
    if tuple(type(field) for field in item[1:]) != types:
        raise BadField("an envelope with wrong fields")
    return item


def _no_extension(code: int, _: bytes) -> object:
    raise BadField(f"an extension type ({code})")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
