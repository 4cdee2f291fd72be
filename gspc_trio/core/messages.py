"""Calls and answers that every component knows."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Question(Struct, Generic[AnswerT_co], frozen=True):
    """A call; its type names that of the answer."""


class Done(Struct, frozen=True):
    """The call was carried out."""
