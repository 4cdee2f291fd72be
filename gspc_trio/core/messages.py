"""Calls and answers that every component knows."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Done(Struct, frozen=True):
    """The call was carried out."""


class GetStatus(Struct, frozen=True):
    """Answered by a Status."""


class Status(Struct, frozen=True):
    """State for people and scripts: plain data."""

    data: dict[str, Any]
