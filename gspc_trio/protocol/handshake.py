"""The handshake of a connection: roles, versions of the protocol, and a proof of the token.

Three messages, each one msgpack array of at most ``Limits.handshake_bytes_max`` bytes::

    dialer    hello     version range, role, name, nonce, instance, expected role, call credit
    listener  welcome   version, role, name, nonce, instance, call credit; proof
    dialer    proof     proof

A proof is HMAC-SHA256 with the token over a label, the hello and the welcome as they travelled: so over the
version range and the version taken (no downgrade), both roles, both nonces (no replay) and both instances.
The label differs by side, so that a proof sent back to its author (a mirror) is wrong. In place of its turn a
side may say ``refused`` with a reason.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, TypeAlias

import msgpack
from msgspec import Struct

from gspc_trio.protocol.limits import Limits

PROTOCOL_VERSION = 1
"""Raised when a message changes; peers agree on the highest version that both speak."""

PROTOCOL_VERSION_MIN = 1
"""The oldest version still spoken."""

MAGIC = "gspc-trio"
NONCE_BYTES = 32
NAME_CHARACTERS_MAX = 256
TEXT_CHARACTERS_MAX = 1024
LISTENER_LABEL = b"gspc-trio listener"
DIALER_LABEL = b"gspc-trio dialer"


Fields: TypeAlias = tuple[Any, ...]
"""What a handshake message has said, of types that are still to be checked."""


class BadHandshake(ValueError):
    """What arrived is no handshake message."""


class Hello(Struct, frozen=True):
    """First message of the side that dials."""

    version_min: int
    version_max: int
    role: str
    name: str
    nonce: bytes
    instance: str
    expect: str
    call_credit: int


class Welcome(Struct, frozen=True):
    """Answer of the side that listens; ``signed`` is what the proofs cover, as it travelled."""

    version: int
    role: str
    name: str
    nonce: bytes
    instance: str
    call_credit: int
    signed: bytes
    proof: bytes


class Proof(Struct, frozen=True):
    """Last message of the side that dials."""

    proof: bytes


class Refused(Struct, frozen=True):
    """One side's reason for not going on; ``kind`` is version, token, role, protocol or overload."""

    kind: str
    message: str
    version_min: int
    version_max: int


HandshakeMessage: TypeAlias = Hello | Welcome | Proof | Refused


def prove(token: bytes, label: bytes, hello: bytes, welcome_signed: bytes) -> bytes:
    """Return the proof of one side (``label``) over what was said (32 bytes)."""
    said = msgpack.packb([label, hello, welcome_signed])
    return hmac.digest(token, said, hashlib.sha256)


def proof_holds(token: bytes, label: bytes, hello: bytes, welcome_signed: bytes, proof: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(prove(token, label, hello, welcome_signed), proof)


def encode_hello(hello: Hello) -> bytes:
    """Return the hello as it travels."""
    versions = (hello.version_min, hello.version_max)
    who = (hello.role, hello.name, hello.nonce, hello.instance)
    return _pack("hello", *versions, *who, hello.expect, hello.call_credit)


def sign_welcome(version: int, role: str, name: str, nonce: bytes, instance: str, call_credit: int) -> bytes:
    """Return the part of a welcome that the proofs cover."""
    packed: bytes = msgpack.packb((version, role, name, nonce, instance, call_credit))
    return packed


def encode_welcome(signed: bytes, proof: bytes) -> bytes:
    """Return the welcome as it travels."""
    return _pack("welcome", signed, proof)


def encode_proof(proof: bytes) -> bytes:
    """Return the dialer's proof as it travels."""
    return _pack("proof", proof)


def encode_refused(refused: Refused) -> bytes:
    """Return the refusal as it travels."""
    return _pack(
        "refused",
        refused.kind,
        refused.message[:TEXT_CHARACTERS_MAX],
        refused.version_min,
        refused.version_max,
    )


def decode_handshake(data: bytes, limits: Limits) -> HandshakeMessage:
    """Read one handshake message; fields that a later version appends are ignored.

    Raises:
        BadHandshake: it is none, or too long.
    """
    if len(data) > limits.handshake_bytes_max:
        raise BadHandshake(
            f"a handshake message of {len(data)} bytes, {limits.handshake_bytes_max} are allowed"
        )
    fields = _unpack(data)
    if len(fields) < 2 or fields[0] != MAGIC:
        raise BadHandshake("something that is not a gspc-trio handshake")
    kind, body = fields[1], fields[2:]
    if kind == "hello":
        return Hello(*_typed(body, (int, int, str, str, bytes, str, str, int)))
    if kind == "welcome":
        signed, proof = _typed(body, (bytes, bytes))
        version, role, name, nonce, instance, credit = _typed(
            _unpack(signed), (int, str, str, bytes, str, int)
        )
        return Welcome(version, role, name, nonce, instance, credit, signed, proof)
    if kind == "proof":
        return Proof(*_typed(body, (bytes,)))
    if kind == "refused":
        return Refused(*_typed(body, (str, str, int, int)))
    raise BadHandshake("a handshake message of unknown kind")


def _pack(*fields: object) -> bytes:
    packed: bytes = msgpack.packb((MAGIC, *fields))
    return packed


def _unpack(data: bytes) -> Fields:
    try:
        fields = msgpack.unpackb(data, use_list=False, max_array_len=32, max_map_len=0)
    except Exception as error:  # whatever msgpack makes of hostile bytes
        raise BadHandshake("bytes that are not msgpack") from error
    if type(fields) is not tuple:
        raise BadHandshake("something that is not a gspc-trio handshake")
    return fields


def _typed(fields: Fields, types: tuple[type, ...]) -> Fields:
    """Return as many fields as there are types; raise BadHandshake when one is missing or of another type."""
    if len(fields) < len(types):
        raise BadHandshake("a handshake message with fields missing")
    for value, expected in zip(fields, types, strict=False):
        if type(value) is not expected:
            raise BadHandshake("a handshake message with a field of a wrong type")
        if isinstance(value, int) and value < 0:
            raise BadHandshake("a handshake message with a negative number")
        if isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
            raise BadHandshake("a handshake message with too long a name")
    return fields[: len(types)]
