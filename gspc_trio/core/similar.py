"""Suggestions for misspelled names: "did you mean ...?"."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

LIKE_MIN = 0.7
"""How like what was written a name must be, from 0 to 1, to be taken for what was meant."""

NAMES_MAX = 2_000
"""Among so many names one is looked for: each is compared."""


def most_similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like this one, None if none is much like it."""
    from difflib import get_close_matches  # only here: it is needed for errors alone

    found = get_close_matches(name, list(islice(known, NAMES_MAX)), n=1, cutoff=LIKE_MIN)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question to be put behind a message of a name that does not exist, or "".

    >>> did_you_mean("resluts", ["items", "results"])
    " (did you mean 'results'?)"
    """
    found = most_similar(name, known)
    return "" if found is None else f" (did you mean {found!r}?)"
