"""Words of xpnet: which elements there are, what may be in them, and which attributes they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from gspc_trio.core.similar import did_you_mean
from gspc_trio.workflow.formats.format import Problem, Source
from gspc_trio.workflow.formats.xml_tree import Element

TRUE, FALSE = frozenset({"true", "1"}), frozenset({"false", "0"})


class Kind(Struct, frozen=True):
    """What an element may have.

    Attributes:
        required: attributes that it needs.
        optional: attributes that it may have.
        children: tags of what may be in it.
        is_text: whether it has text of its own.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    is_text: bool = False


_PROPERTIES = ("properties", "include-properties")
_PORT = Kind(("name", "type"), ("place",), _PROPERTIES)
_TEXT = Kind(is_text=True)
_INCLUDE = Kind(("href",))
_CONNECT = Kind(("port", "place"), (), _PROPERTIES)
_FLAG = Kind((), ("flag", "flags"))
_UNLOADS = ("require_function_unloads_without_rest", "require_module_unloads_without_rest")
_STRUCTS = ("struct", "include-structs")
_TEMPLATES = ("template", "specialize", "include-template")
_PORTS = ("in", "out", "inout", "tunnel")
_MEMORY = ("memory-buffer", "memory-get", "memory-put", "memory-getput")
_BODIES = ("expression", "module", "modules", "net")
_CONNECTIONS = (
    "connect-in",
    "connect-out",
    "connect-out-many",
    "connect-inout",
    "connect-read",
    "connect-number-of-tokens",
    "connect-response",
    "connect-eureka",
)

KINDS: Mapping[str, Kind] = {
    "defun": Kind(
        (), ("name",), ("require", "condition", *_PROPERTIES, *_STRUCTS, *_PORTS, *_MEMORY, *_BODIES)
    ),
    "in": _PORT,
    "out": _PORT,
    "inout": _PORT,
    "tunnel": _PORT,
    "expression": _TEXT,
    "condition": _TEXT,
    "require": Kind(("key",)),
    "module": Kind(
        ("name", "function"),
        ("target", "eureka-group", "pass_context", *_UNLOADS),
        ("eureka-group", "cinclude", "ld", "cxx", "code"),
    ),
    "modules": Kind((), (), ("preferences", "module")),
    "preferences": Kind((), (), ("target",)),
    "target": _TEXT,
    "eureka-group": _TEXT,
    "cinclude": _INCLUDE,
    "ld": _FLAG,
    "cxx": _FLAG,
    "code": _TEXT,
    "net": Kind((), (), ("place", "transition", *_PROPERTIES, *_STRUCTS, *_TEMPLATES)),
    "place": Kind(
        ("name", "type"), ("virtual", "put_token", "shared_sink", "generator"), ("token", *_PROPERTIES)
    ),
    "token": Kind((), (), ("value",)),
    "value": _TEXT,
    "transition": Kind(
        ("name",),
        ("priority", "inline", "produce_shared", "consume_shared", "passthrough_shared"),
        (
            "require",
            "defun",
            "include-function",
            "use",
            "place-map",
            "condition",
            *_PROPERTIES,
            *_CONNECTIONS,
        ),
    ),
    "use": Kind(("name",)),
    "include-function": _INCLUDE,
    "include-template": _INCLUDE,
    "include-structs": _INCLUDE,
    "include-properties": _INCLUDE,
    "connect-in": _CONNECT,
    "connect-out": _CONNECT,
    "connect-out-many": _CONNECT,
    "connect-inout": _CONNECT,
    "connect-read": _CONNECT,
    "connect-number-of-tokens": _CONNECT,
    "connect-response": Kind(("port", "to"), (), _PROPERTIES),
    "connect-eureka": Kind(("port",)),
    "place-map": Kind(("virtual", "real"), (), _PROPERTIES),
    "template": Kind((), ("name",), ("template-parameter", "defun")),
    "template-parameter": Kind(("type",)),
    "specialize": Kind(("name", "use"), (), ("type-map", "type-get")),
    "type-map": Kind(("replace", "with")),
    "type-get": Kind(("name",)),
    "struct": Kind(("name",), (), ("field", "struct")),
    "field": Kind(("name", "type")),
    "structs": Kind((), (), _STRUCTS),
    "props": Kind((), (), _PROPERTIES),
    "properties": Kind(("name",), (), ("property", *_PROPERTIES)),
    "property": Kind(("key",), ("value",), (), is_text=True),
    "memory-buffer": Kind(("name",), ("read-only",), ("size", "alignment", *_PROPERTIES)),
    "memory-get": Kind((), ("allow-empty-ranges",), ("global", "local", *_PROPERTIES)),
    "memory-put": Kind(
        (), ("allow-empty-ranges", "not-modified-in-module-call"), ("global", "local", *_PROPERTIES)
    ),
    "memory-getput": Kind(
        (), ("allow-empty-ranges", "not-modified-in-module-call"), ("global", "local", *_PROPERTIES)
    ),
    "size": _TEXT,
    "alignment": _TEXT,
    "global": _TEXT,
    "local": _TEXT,
}
"""Tag -> what such an element may have."""

BOOLEANS = frozenset(
    {
        "inline",
        "virtual",
        "put_token",
        "shared_sink",
        "generator",
        "produce_shared",
        "consume_shared",
        "passthrough_shared",
        "read-only",
        "allow-empty-ranges",
        "not-modified-in-module-call",
        "pass_context",
        *_UNLOADS,
    }
)
"""Attributes that are true or false."""


class Spot(Struct, frozen=True):
    """A place in a file: what a description says it is from.

    Attributes:
        source: the file.
        element: of its tree.
    """

    source: Source
    element: Element

    def problem(self, message: str) -> Problem:
        """Return a problem at the beginning of the element."""
        return self.source.problem(message, self.element.line, self.element.column)

    def at(self, element: Element) -> Spot:
        """Return another spot of the same file."""
        return Spot(self.source, element)

    def get(self, name: str, default: str = "") -> str:
        """Return an attribute."""
        return self.element.attributes.get(name, default)

    def is_true(self, name: str) -> bool:
        """Return an attribute that is true or false; false if it is not there."""
        return self.get(name, "false").strip() in TRUE

    def all(self, *tags: str) -> Iterator[Spot]:
        """Return the children that have one of these tags, in the order of the file."""
        return (self.at(child) for child in self.element.children if child.tag in tags)

    def element_spots(self) -> Iterator[Spot]:
        """Return all children, in the order of the file."""
        return map(self.at, self.element.children)

    def first(self, tag: str) -> Spot | None:
        """Return the first child with this tag, None if there is none."""
        return next(self.all(tag), None)

    @property
    def tag(self) -> str:
        """The tag of the element."""
        return self.element.tag

    @property
    def text(self) -> str:
        """The text of the element."""
        return self.element.text


def check_words(spot: Spot, report: Callable[[Problem], None]) -> None:
    """Report every element and attribute below an element that is not of the language, or lacks something."""
    waiting = [spot]
    while waiting:
        here = waiting.pop()
        kind = KINDS[here.tag]
        _check_attributes(here, kind, report)
        for child in here.element.children:
            there = here.at(child)
            if child.tag in kind.children:
                waiting.append(there)
                continue
            allowed = ", ".join(f"<{tag}>" for tag in kind.children) or "no elements"
            meant = did_you_mean(child.tag, kind.children)
            report(there.problem(f"<{child.tag}> cannot be in <{here.tag}>{meant}; there can be: {allowed}"))
        if not kind.is_text and (stray := here.text.strip()):
            shown = stray if len(stray) <= 20 else stray[:17] + "..."
            report(here.problem(f"<{here.tag}> has no text of its own; remove {shown!r}"))


def _check_attributes(spot: Spot, kind: Kind, report: Callable[[Problem], None]) -> None:
    known = (*kind.required, *kind.optional)
    for name, value in spot.element.attributes.items():
        if name == "noNamespaceSchemaLocation":
            continue
        if name not in known:
            there = ", ".join(known) or "none"
            meant = did_you_mean(name, known)
            report(
                spot.problem(f"<{spot.tag}> has no attribute {name!r}{meant}; its attributes are: {there}")
            )
        elif name in BOOLEANS and spot.tag != "place-map" and value.strip() not in TRUE | FALSE:
            report(spot.problem(f"{name} is true or false, not {value!r}"))
    for name in kind.required:
        if not spot.get(name).strip():
            report(spot.problem(f"<{spot.tag}> needs the attribute {name!r}"))
