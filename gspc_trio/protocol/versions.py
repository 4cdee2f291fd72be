"""The versions of the protocol that this side speaks."""

from __future__ import annotations

PROTOCOL_VERSION = 1
"""Raised when a message changes; peers agree on the highest version that both speak."""


PROTOCOL_VERSION_MIN = 1
"""The oldest version still spoken."""
