"""Envelopes beside plain messages: calls, replies, failures, heartbeats."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class EncodeError(ValueError):
    """This message cannot travel; the message says why."""


class Call(Struct, frozen=True):
    """A message that wants an answer; ``call_id`` is counted by the caller from 1 on each connection."""

    call_id: int
    body: object


class Reply(Struct, frozen=True):
    """The answer to a call."""

    call_id: int
    body: object


class Failure(Struct, frozen=True):
    """The call was refused: ``kind`` names the exception's type, ``message`` is one line."""

    call_id: int
    kind: str
    message: str


class Beat(Struct, frozen=True):
    """Nothing else had to be said for a heartbeat."""


Envelope: TypeAlias = Call | Reply | Failure | Beat

ENVELOPE_TYPES: frozenset[type] = frozenset({Call, Reply, Failure, Beat})
