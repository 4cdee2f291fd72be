"""Text of co-allocation requests: from text to a tree, and back (COA-1).

    request  = "*" (option | stage)+ | "+" (option | part)+ | "&" option+ | NAME option*
    stage    = "(" request ")"          part = "(" ("&" option+ | NAME option*) ")"
    option   = "(" NAME op value+ ")"   op = "=" "!=" "<" "<=" ">" ">="
    value    = LITERAL | "text" | 'text' | "(" value+ ")"

``(`` and a name begin an option if an operator comes next, else a stage or a part.
"""

from __future__ import annotations

import re
from typing import Final

from gspc_trio.components.coallocation.tree import (
    DEPTH_MAX,
    JOBS_MAX,
    TEXT_BYTES_MAX,
    DescribedJob,
    Multistage,
    NamedJob,
    Option,
    Place,
    Request,
    RslError,
    SingleStage,
    Value,
)
from gspc_trio.components.coallocation.vocabulary import check_options, option_name

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<open>\()
      | (?P<close>\))
      | (?P<operator>!=|<=|>=|=|<|>)
      | (?P<quoted>"[^"]*(?:""[^"]*)*"(?!")|'[^']*(?:''[^']*)*'(?!'))
      | (?P<literal>[^\s=!<>()"'^*$\#?~+&|][^\s=!<>()"'^*$\#?~]*)
      | (?P<sign>[*+&])
      | (?P<end>\Z)
      | (?P<wrong>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
LITERAL: Final = re.compile(r"""[^\s=!<>()"'^*$#?~+&|][^\s=!<>()"'^*$#?~]*""")

NOT_IN_TEXT: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that neither a text nor XML has."""

_REQUEST = "'*', '+', '&' or the name of a job"
_STAGE = "'*', '+', '&', the name of a job or that of an option"
_PART = "'&', the name of a job or that of an option"
_BEHIND_NAME = "'=', '!=', '<', '<=', '>', '>=', '('"
_OPERATOR = "'=', '!=', '<', '<=', '>' or '>='"
_VALUE = "a value"


class _Reader:
    """Reads tokens, one ahead; each is read once but for a name behind ``(``.

    Attributes:
        kind, value: of the next token; its text without quotes.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._next = _TOKEN.finditer(text).__next__
        self._end = 0
        self._line, self._line_start, self._next_line = 1, 0, text.find("\n")
        self.kind: str | None = ""
        self.value = ""
        self.at = 0
        self.depth = 0
        self.jobs = 0
        self.step()

    def step(self) -> None:
        """Go on to the next token."""
        found = self._next()
        self.kind = kind = found.lastgroup
        assert kind is not None
        self.value = found[kind]
        self.at, self._end = found.span(kind)
        if kind == "quoted":
            quote = self.value[0]
            self.value = self.value[1:-1].replace(quote * 2, quote)

    def place(self) -> Place:
        """Return line and column of the next token; called for tokens in their order."""
        at = self.at
        while 0 <= self._next_line < at:
            self._line += 1
            self._line_start = self._next_line + 1
            self._next_line = self.text.find("\n", self._line_start)
        return self._line, at - self._line_start + 1

    def refuse(self, wanted: str) -> RslError:
        """Return an error: the next token cannot be here."""
        place = self.place()
        if self.kind == "end":
            return RslError(f"the text ends here, and {wanted} is missing", place)
        if self.kind == "wrong" and self.value in "\"'":
            return RslError(f"this quote is never closed: {wanted} may stand here", place)
        shown = self.text[self.at : self._end]
        return RslError(f"{shown!r:.60} cannot be here; {wanted} may", place)

    def open(self) -> None:
        """Take a parenthesis that opens."""
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise RslError(f"parentheses are nested more than {DEPTH_MAX} deep", self.place())
        self.step()

    def close(self, wanted: str) -> None:
        """Take a parenthesis that closes."""
        if self.kind != "close":
            raise self.refuse(f"{wanted} or ')'")
        self.depth -= 1
        self.step()

    def count(self) -> None:
        """Note a job."""
        self.jobs += 1
        if self.jobs > JOBS_MAX:
            raise RslError(f"there are more than {JOBS_MAX:,} jobs", self.place())

    # Rules

    def request(self, wanted: str = _REQUEST) -> Request:
        """Read a request."""
        if self.kind == "sign" and self.value == "*":
            return self.multistage()
        if self.kind == "sign" and self.value == "+":
            return self.single_stage()
        return self.job(wanted)

    def multistage(self) -> Multistage:
        """Read what begins with ``*``."""
        place, options, stages = self.place(), list[Option](), list[Request]()
        self.step()
        while self.kind == "open":
            self.open()
            if self.kind == "literal":
                name, at = self.value, self.place()
                self.step()
                if self.kind == "operator":
                    options.append(self.option(name, at))
                    wanted = _VALUE
                else:
                    stages.append(self.named(name, at))
                    wanted = "'('" if stages[-1].options else _BEHIND_NAME
            else:
                stages.append(self.request(_STAGE))
                wanted = "'('"
            self.close(wanted)
        if not stages:
            raise self.refuse("'(' and a stage")
        check_options(options, "stages")
        return Multistage(tuple(stages), tuple(options), place)

    def single_stage(self) -> SingleStage:
        """Read what begins with ``+``."""
        place, options, parts = self.place(), list[Option](), list[DescribedJob | NamedJob]()
        self.count()
        self.step()
        while self.kind == "open":
            self.open()
            if self.kind == "literal":
                name, at = self.value, self.place()
                self.step()
                if self.kind == "operator":
                    options.append(self.option(name, at))
                    wanted = _VALUE
                else:
                    parts.append(self.named(name, at, "part"))
                    wanted = "'('" if parts[-1].options else _BEHIND_NAME
            else:
                parts.append(self.job(_PART, "part"))
                wanted = "'('"
            self.close(wanted)
        if not parts:
            raise self.refuse("'(' and a part")
        check_options(options, "job")
        return SingleStage(tuple(parts), tuple(options), place)

    def job(self, wanted: str, kind: str = "program") -> DescribedJob | NamedJob:
        """Read a ``&`` or a name, with options."""
        place = self.place()
        if self.kind == "literal":
            name = self.value
            self.step()
            return self.named(name, place, kind)
        if self.kind != "sign" or self.value != "&":
            raise self.refuse(wanted)
        self.count()
        self.step()
        options = self.options(kind)
        if not options:
            raise self.refuse("'(' and an option")
        return DescribedJob(options, place)

    def named(self, name: str, place: Place, kind: str = "program") -> NamedJob:
        """Read the options behind the name of a job."""
        self.count()
        return NamedJob(name, self.options(kind) if self.kind == "open" else (), place)

    def options(self, kind: str) -> tuple[Option, ...]:
        """Read the options of a job."""
        options: list[Option] = []
        while self.kind == "open":
            self.open()
            if self.kind != "literal":
                raise self.refuse("the name of an option")
            name, place = self.value, self.place()
            self.step()
            if self.kind != "operator":
                raise self.refuse(_OPERATOR)
            options.append(self.option(name, place))
            self.close(_VALUE)
        check_options(options, kind)
        return tuple(options)

    def option(self, written: str, place: Place) -> Option:
        """Read an option from its operator to its last value."""
        name = option_name(written, place)
        operator = self.value
        self.step()
        values, places = list[Value](), list[Place]()
        while self.kind != "close":
            line, column = self.place()
            is_behind = name == "wait" and self.kind == "quoted"  # places within it are told
            places.append((line, column + is_behind))
            values.append(self.read_value(bool(values)))
        if not values:
            raise self.refuse(_VALUE)
        return Option(name, tuple(values), operator, place, tuple(places))

    def read_value(self, is_later: bool) -> Value:
        """Read a value; a later one need not be there."""
        if self.kind == "literal" or self.kind == "quoted":
            value = self.value
            self.step()
            return value
        if self.kind != "open":
            raise self.refuse(f"{_VALUE} or ')'" if is_later else _VALUE)
        self.open()
        values: list[Value] = []
        while self.kind != "close":
            values.append(self.read_value(bool(values)))
        if not values:
            raise self.refuse(_VALUE)
        self.close(_VALUE)
        return tuple(values)


def parse_text(text: str) -> Request:
    """Return the tree of a request that is written as text.

    Raises:
        RslError: it cannot be read, or is too large or too deep.
    """
    if len(text) > TEXT_BYTES_MAX or len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
        raise RslError(f"the text has more than {TEXT_BYTES_MAX // 2**20} MiB")
    if (wrong := NOT_IN_TEXT.search(text)) is not None:
        line, column = (
            text.count("\n", 0, wrong.start()) + 1,
            wrong.start() - text.rfind("\n", 0, wrong.start()),
        )
        raise RslError(f"{wrong[0]!r} is a character that no request has", (line, column))
    reader = _Reader(text)
    request = reader.request()
    if reader.kind != "end":
        raise reader.refuse("'(' or the end")
    return request


def print_text(request: Request) -> str:
    """Return a request as text, in one line."""
    pieces: list[str] = []
    _print(request, pieces)
    return "".join(pieces)


def _print(request: Request, pieces: list[str]) -> None:
    if isinstance(request, NamedJob):
        pieces.append(request.name)
    else:
        pieces.append(
            "*" if isinstance(request, Multistage) else "+" if isinstance(request, SingleStage) else "&"
        )
    for option in request.options:
        values = " ".join(map(_value_text, option.values))
        pieces.append(f"({option.name}{option.operator}{values})")
    below = (
        ()
        if isinstance(request, DescribedJob | NamedJob)
        else (request.stages if isinstance(request, Multistage) else request.parts)
    )
    for one in below:
        pieces.append("(")
        _print(one, pieces)
        pieces.append(")")


def _value_text(value: Value) -> str:
    if not isinstance(value, str):
        return "(" + " ".join(map(_value_text, value)) + ")"
    if LITERAL.fullmatch(value):
        return value
    return '"' + value.replace('"', '""') + '"'
