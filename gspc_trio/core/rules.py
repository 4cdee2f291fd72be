"""Rules for arguments in the texts of a program, and for the outputs that a task's result is split into.

Free of attrs: compute processes apply these rules, and are many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from gspc_trio.core.similar import did_you_mean

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names that stand as ``{name}`` in ``text``, each once, in order.

    Any other brace is an ordinary character, so that shell and awk scripts need no escapes.
    """
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(text)))


def fill(text: str, values: Mapping[str, object]) -> str:
    """Return ``text`` with ``str(values[name])`` for each ``{name}``; a name without a value stays."""
    if "{" not in text:
        return text
    return _PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), text)


Output: TypeAlias = tuple[str | None, bool]
"""One output of a task's code: (port, each).

``port`` is the key of the returned mapping that holds it, None for the whole returned value; with ``each``
every element of it is a token of its own.
"""

WHOLE: tuple[Output, ...] = ((None, False),)
"""The whole returned value is the one token of the one output."""


class BadResult(TypeError):
    """What a task returned does not fit the outputs it states."""


def split_outputs(value: object, outputs: tuple[Output, ...]) -> tuple[tuple[object, ...], ...]:
    """Return, for each output, the tokens that ``value`` puts there.

    Raises:
        BadResult: a port is missing in the returned value, or what should be many tokens is not a list.
    """
    if outputs == WHOLE:
        return ((value,),)
    return tuple(_output_tokens(value, port, each) for port, each in outputs)


def _output_tokens(value: object, port: str | None, each: bool) -> tuple[object, ...]:
    if port is not None:
        if not isinstance(value, Mapping):
            raise BadResult(f"a mapping with the port {port!r} was to be returned, not {_kind(value)}")
        if port not in value:
            there = ", ".join(map(repr, value)) or "nothing"
            meant = did_you_mean(port, [name for name in value if isinstance(name, str)])
            raise BadResult(f"the returned mapping has no port {port!r}; it has {there}{meant}")
        value = value[port]
    if not each:
        return (value,)
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        what = "a list of tokens" if port is None else f"a list of tokens for the port {port!r}"
        raise BadResult(f"{what} was to be returned, not {_kind(value)}")
    return tuple(value)


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"
