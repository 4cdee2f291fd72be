"""Grammar of expressions of xpnet: from a text to a tree.

Operators from loose to tight: ``:=`` (right), ``||`` ``|``, ``&&`` ``&``, comparisons, ``+`` ``-``,
``*`` ``/`` ``div``, ``mod`` ``%``, ``**`` ``^`` (right), unary ``-`` and ``!``. Others group from the left.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from typing import TypeAlias, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from msgspec.structs import replace

from gspc_trio.workflow.formats.format import FormatError
from gspc_trio.workflow.formats.xpnet.tree import (
    Applied,
    Assigned,
    Expression,
    ExpressionNode,
    ExpressionText,
    Literal,
    Made,
    PathReference,
    TextStart,
    levels,
)
from gspc_trio.workflow.formats.xpnet.values import (
    BIGINT_BITS_MAX,
    BITSET_BITS_MAX,
    DEPTH_MAX,
    Bitset,
    decimal_number,
    float32,
)

CHARACTERS_MAX = 1 << 18
"""Length of the longest text: a list of 50,000 numbers."""

GRAMMAR = r"""
sequence: (expression? SEMICOLON)* expression?
?expression: assignment
?assignment: REFERENCE ASSIGN assignment -> assigned
    | disjunction
?disjunction: disjunction (OR|BIT_OR) conjunction -> binary
    | conjunction
?conjunction: conjunction (AND|BIT_AND) comparison -> binary
    | comparison
?comparison: comparison (EQ|NE|LT|LE|GT|GE) sum -> binary
    | sum
?sum: sum (PLUS|MINUS) product -> binary
    | product
?product: product (TIMES|SLASH|DIV) remainder -> binary
    | remainder
?remainder: remainder (MOD|PERCENT) power -> binary
    | power
?power: unary (STARS|CARET) power -> binary
    | unary
?unary: prefixed
    | primary
?prefixed: (MINUS|NOT) unary -> prefix
?primary: LEFT expression RIGHT -> inner
    | atom
?atom: NUMBER -> number
    | STRING_LITERAL -> string
    | CHAR_LITERAL -> char
    | (TRUE|FALSE) -> truth
    | (PI|E) -> constant
    | LEFT_BRACKET RIGHT_BRACKET -> control
    | LEFT_BRACE NUMBER* RIGHT_BRACE -> bits
    | Y LEFT NUMBER* RIGHT -> octets
    | REFERENCE -> reference
    | LIST LEFT _items? RIGHT -> made
    | SET LEFT_BRACE _items? RIGHT_BRACE -> made
    | MAP LEFT_BRACKET (pair (COMMA pair)*)? RIGHT_BRACKET -> made_map
    | STRUCT LEFT_BRACKET (field (COMMA field)*)? RIGHT_BRACKET -> made_struct
    | NAME LEFT _items RIGHT -> call
    | (MOD|DIV) LEFT expression COMMA expression RIGHT -> call
    | NAME (atom|prefixed) -> call
_items: expression (COMMA expression)*
pair: expression ARROW expression
field: FIELD ASSIGN expression

SEMICOLON: ";"
COMMA: ","
LEFT: "("
RIGHT: ")"
LEFT_BRACKET: "["
RIGHT_BRACKET: "]"
LEFT_BRACE: "{"
RIGHT_BRACE: "}"
ARROW: "->"
ASSIGN: ":="
OR: "||" | ":or:"
BIT_OR: "|"
AND: "&&" | ":and:"
BIT_AND: "&"
EQ: "==" | ":eq:"
NE: "!=" | ":ne:"
LT: "<" | ":lt:"
LE: "<=" | ":le:"
GT: ">" | ":gt:"
GE: ">=" | ":ge:"
PLUS: "+"
MINUS: "-"
TIMES: "*"
SLASH: "/"
DIV: "div"
MOD: "mod"
PERCENT: "%"
STARS: "**"
CARET: "^"
NOT: "!" | ":not:"
TRUE: "true"
FALSE: "false"
PI: "pi"
E: "e"
Y: "y"
LIST: "List"
SET: "Set"
MAP: "Map"
STRUCT: "Struct"
REFERENCE: /\$\{\s*[A-Za-z_]\w*(\s*\.\s*[A-Za-z_]\w*)*\s*\}/
NUMBER: /(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?[A-Za-z]*/
STRING_LITERAL: /"([^"\\]|\\.)*"/s
CHAR_LITERAL: /'([^'\\]|\\.)'/s
NAME: /[A-Za-z_]\w*/
FIELD: /[A-Za-z_]\w*/
%ignore /\s+/
"""

SIGNS = {
    "OR": "||",
    "BIT_OR": "|",
    "AND": "&&",
    "BIT_AND": "&",
    "EQ": "==",
    "NE": "!=",
    "LT": "<",
    "LE": "<=",
    "GT": ">",
    "GE": ">=",
    "NOT": "!",
}
"""Token with several spellings -> the sign of the operator."""

ALIASES = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "divint": "div",
    "modint": "mod",
    "pow": "**",
    "powint": "^",
    "tolong": "long",
    "todouble": "double",
}
"""Name of a function -> the operator or function that is meant."""

_SAID = {"FIELD": "the name of a field"}
"""Token -> what a message calls it; others by how they are written."""

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "'": "'"}
_SUFFIXES = {"": "int", "L": "long", "U": "uint", "UL": "ulong", "A": "bigint"}
_SIGNED = ("int", "long", "bigint", "float", "double")
_QUOTED = {'"': "string", "'": "char"}
_SHARED = "shared_"
_NUMBER = re.compile(r"(\d*)(\.\d*)?([eE][+-]?\d+)?([A-Za-z]*)")
BIGINT_DIGITS_MAX = BIGINT_BITS_MAX * 30103 // 100000
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_IN_COMMENT = re.compile(r"/\*|\*/")
_SCANNED = re.compile(r"""/\*|\*/|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)'|["'(\[{)\]}]""", re.DOTALL)


def parse_expression(text: str, where: TextStart) -> Expression:
    """Return the tree of an expression, or of several with ``;`` between.

    Args:
        text: what is written.
        where: the place of its first character.

    Raises:
        FormatError: it is no expression, or too long or too deep; says where, and what may be there.
    """
    source = ExpressionText(text, where)
    if len(text) > CHARACTERS_MAX:
        raise source.error(0, f"an expression of {len(text)} characters: at most {CHARACTERS_MAX} are read")
    try:
        parts = cast("list[ExpressionNode]", _parser().parse(_without_comments(text)))
        _check_depth(parts)
    except _Misread as error:
        raise source.error(error.at, error.message) from None
    except UnexpectedInput as error:
        raise _unexpected(source, error) from None
    return Expression(source, tuple(parts))


class _Misread(Exception):
    """Something is wrong at a character."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at
        self.message = message


def _check_depth(parts: list[ExpressionNode]) -> None:
    """See that what walks along the tree may do so by recursion."""
    for part in parts:
        for depth, node in levels(part):
            if depth > DEPTH_MAX:
                raise _Misread(
                    node.begin, f"this is nested deeper than {DEPTH_MAX} levels: use several steps"
                )


def _without_comments(text: str) -> str:
    """Return a text with spaces in place of comments, and see that what opens is closed."""
    pieces: list[str] = []
    comments: list[int] = []
    opened: list[int] = []
    at = done = 0
    while match := (_IN_COMMENT if comments else _SCANNED).search(text, at):
        found, at = match[0], match.end()
        if found == "/*":
            if not comments:
                pieces.append(text[done : match.start()])
                done = match.start()
            comments.append(match.start())
        elif found == "*/":
            if not comments:
                raise _Misread(match.start(), "*/ ends a comment, and none has begun")
            comments.pop()
            if not comments:
                pieces.append(re.sub(r"[^\n]", " ", text[done : match.end()]))
                done = match.end()
        elif found in ("'", '"'):
            raise _Misread(match.start(), f"{found} begins a {_QUOTED[found]}, which does not end")
        elif found in _CLOSED_BY:
            opened.append(match.start())
            if len(opened) > DEPTH_MAX:
                raise _Misread(match.start(), f"more than {DEPTH_MAX} parentheses are open here")
        elif found in _CLOSED_BY.values():
            if not opened or _CLOSED_BY[text[opened[-1]]] != found:
                there = f"{_CLOSED_BY[text[opened[-1]]]} is missing before" if opened else "nothing is open"
                raise _Misread(match.start(), f"{found} closes nothing: {there}")
            opened.pop()
    if comments:
        raise _Misread(comments[-1], "this comment does not end: */ is missing")
    if opened:
        at = opened[-1]
        raise _Misread(at, f"{text[at]} is open to the end: {_CLOSED_BY[text[at]]} is missing")
    return "".join((*pieces, text[done:]))


def _unexpected(source: ExpressionText, error: UnexpectedInput) -> FormatError:
    """Return what to say where something else should be."""
    at = len(source.text) if error.pos_in_stream is None else error.pos_in_stream
    if isinstance(error, UnexpectedToken):
        expected: Iterable[str] = error.accepts or error.expected
        token = error.token
        at = len(source.text) if token.type == "$END" else token.start_pos or 0
        found = "the expression ends" if token.type == "$END" else f"{_short(str(token))!r}"
    elif isinstance(error, UnexpectedCharacters):
        expected = error.allowed or ()
        found = repr(source.text[at : at + 1])
        if source.text[at : at + 2] == "${":
            return source.error(at, "${ begins the name of a binding, as in ${a} or ${a.b}: this is none")
    else:
        return source.error(at, "this is no expression")
    if found == "the expression ends":
        return source.error(at, f"the expression ends where there may be {_list_of(expected)}")
    return source.error(at, f"{found} is not expected here; there may be {_list_of(expected)}")


def _list_of(tokens: Iterable[str]) -> str:
    """Return what messages call the tokens that may be somewhere."""
    if "NUMBER" in tokens:
        return "a value"
    if "PLUS" in tokens or "$END" in tokens:
        return "an operator or the end"
    return " or ".join(sorted(_SAID.get(token, _sign(token)) for token in tokens))


def _short(text: str) -> str:
    return str(text) if len(text) <= 20 else text[:20] + "..."


@cache
def _parser() -> Lark:
    return Lark(
        GRAMMAR,
        start="sequence",
        parser="lalr",
        lexer="contextual",
        transformer=_Builder(),
        propagate_positions=False,
    )


def _sign(token: str) -> str:
    """Return how a token is written."""
    patterns = {terminal.name: str(terminal.pattern.value) for terminal in _parser().terminals}
    return SIGNS.get(token) or patterns.get(token, token).replace("\\", "")


Part: TypeAlias = "Token | ExpressionNode"


def _begin(part: Part) -> int:
    return (part.start_pos or 0) if isinstance(part, Token) else part.begin


def _end(part: Part) -> int:
    return (part.end_pos or 0) if isinstance(part, Token) else part.end


def _nodes(parts: Iterable[Part]) -> tuple[ExpressionNode, ...]:
    return tuple(part for part in parts if not isinstance(part, Token))


class _Builder(Transformer[Token, object]):
    """Makes nodes of what the grammar finds; each method gets the parts of its rule."""

    def sequence(self, parts: list[Part]) -> list[ExpressionNode]:
        return list(_nodes(parts))

    def assigned(self, parts: list[Part]) -> ExpressionNode:
        token, _, value = parts
        assert isinstance(token, Token)
        assert not isinstance(value, Token)
        return Assigned(_begin(token), value.end, _reference(token), value)

    def binary(self, parts: list[Part]) -> ExpressionNode:
        left, token, right = parts
        return Applied(_begin(left), _end(right), _operator(token), _nodes((left, right)))

    def prefix(self, parts: list[Part]) -> ExpressionNode:
        token, operand = parts
        assert not isinstance(operand, Token)
        sign = _operator(token)
        if sign == "-" and isinstance(operand, Literal) and operand.kind in _SIGNED and operand.value > 0:
            # The smallest number of a kind has no counterpart that could be written without its sign.
            return Literal(_begin(token), operand.end, operand.kind, -operand.value)
        return Applied(_begin(token), operand.end, "neg" if sign == "-" else sign, (operand,))

    def inner(self, parts: list[Part]) -> ExpressionNode:
        left, inner, right = parts
        assert not isinstance(inner, Token)
        return replace(inner, begin=_begin(left), end=_end(right))

    def number(self, parts: list[Token]) -> ExpressionNode:
        (token,) = parts
        kind, value = _number(token)
        return Literal(_begin(token), _end(token), kind, value)

    def string(self, parts: list[Token]) -> ExpressionNode:
        (token,) = parts
        return Literal(_begin(token), _end(token), "string", _unescaped(token))

    def char(self, parts: list[Token]) -> ExpressionNode:
        (token,) = parts
        return Literal(_begin(token), _end(token), "char", _unescaped(token))

    def truth(self, parts: list[Token]) -> ExpressionNode:
        (token,) = parts
        return Literal(_begin(token), _end(token), "bool", token == "true")

    def constant(self, parts: list[Token]) -> ExpressionNode:
        (token,) = parts
        return Literal(_begin(token), _end(token), "double", math.pi if token == "pi" else math.e)

    def control(self, parts: list[Token]) -> ExpressionNode:
        return Literal(_begin(parts[0]), _end(parts[-1]), "control", None)

    def bits(self, parts: list[Token]) -> ExpressionNode:
        bits = 0
        if 64 * (len(parts) - 2) > BITSET_BITS_MAX:
            raise _Misread(_begin(parts[0]), f"a bitset has at most {BITSET_BITS_MAX} bits")
        blocks = [_part_number(token, 2**64 - 1) for token in parts[1:-1]]
        bits = int.from_bytes(b"".join(block.to_bytes(8, "little") for block in blocks), "little")
        return Literal(_begin(parts[0]), _end(parts[-1]), "bitset", Bitset(bits))

    def octets(self, parts: list[Token]) -> ExpressionNode:
        octets = bytes(_part_number(token, 255) for token in parts[2:-1])
        return Literal(_begin(parts[0]), _end(parts[-1]), "bytearray", octets)

    def reference(self, parts: list[Token]) -> ExpressionNode:
        return _reference(parts[0])

    def made(self, parts: list[Part]) -> ExpressionNode:
        kind = str(parts[0]).lower()
        return Made(_begin(parts[0]), _end(parts[-1]), kind, (), _nodes(parts))

    def pair(self, parts: list[Part]) -> tuple[ExpressionNode, ...]:
        return _nodes(parts)

    def field(self, parts: list[Part]) -> tuple[Part, ExpressionNode]:
        value = parts[2]
        assert not isinstance(value, Token)
        return parts[0], value

    def made_map(self, parts: list[object]) -> ExpressionNode:
        pairs = [part for part in parts if isinstance(part, tuple)]
        items = tuple(item for pair in pairs for item in pair)
        return Made(*_span(parts), "map", (), items)

    def made_struct(self, parts: list[object]) -> ExpressionNode:
        fields = [part for part in parts if isinstance(part, tuple)]
        names = tuple(str(name) for name, _ in fields)
        for at, name in enumerate(names):
            if name in names[:at]:
                raise _Misread(_begin(fields[at][0]), f"the field {name} is there twice")
        return Made(*_span(parts), "struct", names, tuple(value for _, value in fields))

    def call(self, parts: list[Part]) -> ExpressionNode:
        name = str(parts[0])
        begin, end = _begin(parts[0]), _end(parts[-1])
        operands = _nodes(parts)
        if name.startswith(_SHARED) and len(operands) == 1:
            return Made(begin, end, "shared", (name.removeprefix(_SHARED),), operands)
        name = ALIASES.get(name, name)
        return Applied(begin, end, name, operands)


def _span(parts: list[object]) -> tuple[int, int]:
    first, last = parts[0], parts[-1]
    assert isinstance(first, Token)
    assert isinstance(last, Token)
    return _begin(first), _end(last)


def _operator(token: Part) -> str:
    assert isinstance(token, Token)
    return SIGNS.get(token.type, str(token))


def _reference(token: Token) -> PathReference:
    path = tuple(name.strip() for name in token[2:-1].split("."))
    return PathReference(_begin(token), _end(token), path)


def _number(token: Token) -> tuple[str, float]:
    """Return the kind of a number and what it is."""
    match = _NUMBER.fullmatch(token)
    assert match is not None
    digits, fraction, exponent, suffix = match.groups()
    if fraction is None and exponent is None and suffix in _SUFFIXES:
        kind = _SUFFIXES[suffix]
        if len(digits) > BIGINT_DIGITS_MAX:
            raise _Misread(_begin(token), f"a number of {len(digits)} digits: at most {BIGINT_DIGITS_MAX}")
        return kind, decimal_number(digits)
    if suffix not in ("", "f", "F"):
        known = ", ".join(each for each in (*_SUFFIXES, "f") if each)
        raise _Misread(
            _begin(token), f"{_short(token)!r} is no number: what may follow the digits is {known}"
        )
    try:
        number = float(f"{digits}{fraction or ''}{exponent or ''}")
        number = float32(number) if suffix else number
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise _Misread(_begin(token), f"{_short(token)} is too large for a {'float' if suffix else 'double'}")
    return ("float" if suffix else "double"), number


def _part_number(token: Token, largest: int) -> int:
    """Return a number of a bitset or a bytearray."""
    kind, value = _number(token)
    if kind not in _SUFFIXES.values() or not 0 <= value <= largest:
        raise _Misread(_begin(token), f"{_short(token)} is no whole number from 0 to {largest}")
    return int(value)


def _unescaped(token: Token) -> str:
    """Return what stands between quotes."""

    def meant(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            known = ", ".join(f"\\{each}" for each in _ESCAPES)
            raise _Misread(
                _begin(token) + 1 + match.start(), f"{match[0]!r} means nothing; there are {known}"
            )
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", meant, token[1:-1], flags=re.DOTALL)
