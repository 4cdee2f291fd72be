"""Facts about a thing as HTML, for notebooks: readable on dark and light, with nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from reprlib import Repr

TEXT_MAX = 500
"""Longer texts are cut."""

NAMES_MAX = 12
"""Of more names the first are told."""

_STYLE = "text-align: left; vertical-align: top; white-space: pre-wrap"

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
_SHORT.maxlevel = 3


def short(value: object) -> str:
    """Return a value as Python writes it, cut if it is long."""
    return _SHORT.repr(value)


def facts_table(title: str, /, **facts: str | Collection[str]) -> str:
    """Return a table with a row for each fact; those that are empty are left out.

    Args:
        title: of the thing.
        facts: what each is about -> its text, or names. All is plain text, whatever is in it.
    """
    from html import escape  # its table of all entities takes a moment to load

    head = f'<tr><th colspan="2" style="{_STYLE}">{escape(title)}</th></tr>'
    body = "".join(
        f'<tr><th style="{_STYLE}">{escape(about)}</th><td style="{_STYLE}">{escape(_text(fact))}</td></tr>'
        for about, fact in facts.items()
        if fact
    )
    return f'<table style="color: inherit"><thead>{head}</thead><tbody>{body}</tbody></table>'


def _text(fact: str | Collection[str]) -> str:
    """Return a fact for people, not all of a long one."""
    if not isinstance(fact, str):
        more = len(fact) - NAMES_MAX
        fact = ", ".join(islice(fact, NAMES_MAX)) + (f" and {more:,} more" if more > 0 else "")
    return fact if len(fact) <= TEXT_MAX else f"{fact[:TEXT_MAX]} ..."
