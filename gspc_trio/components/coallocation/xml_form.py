"""XML form of co-allocation requests: from XML to the same tree as from text, and back (COA-1).

``<coallocate>`` with ``<resource>`` is a ``+``; with ``<coallocate>`` or ``<job>`` it is a ``*``. Options are
attributes, or elements such as ``<executable value="climate.out"/>``. There are no document types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from gspc_trio.components.coallocation.text import LITERAL
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
from gspc_trio.workflow.formats.format import FormatError, Source
from gspc_trio.workflow.formats.xml_tree import Element, parse_xml

_ATTRIBUTE = re.compile(r"""\s+([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


def parse_xml_request(data: bytes) -> Request:
    """Return the tree of a request that is written as XML.

    Raises:
        RslError: it is no XML, or no request, or is too large or too deep.
    """
    if len(data) > TEXT_BYTES_MAX:
        raise RslError(f"the text has more than {TEXT_BYTES_MAX // 2**20} MiB")
    try:
        root = parse_xml(Source("", data, lambda _: None))
    except FormatError as error:
        problem = error.problems[0]
        raise RslError(problem.message, (problem.line, problem.column)) from None
    return _Reader(data).request(root, 1)


class _Reader:
    """Reads elements; knows the text, to say where attributes stand."""

    def __init__(self, data: bytes) -> None:
        self._lines = data.decode("utf-8", "replace").split("\n")
        self._jobs = 0

    def request(self, element: Element, depth: int) -> Request:
        """Read ``<coallocate>`` or ``<job>``."""
        place = self._enter(element, depth)
        if element.tag == "job":
            return self._job(element, depth, "program")
        if element.tag != "coallocate":
            raise RslError(f"<{element.tag}> cannot be here; <coallocate> or <job> may", place)
        below = [one for one in element.children if one.tag in ("coallocate", "job", "resource")]
        options = self._options(element, depth, ("name",))
        if not below:
            message = "<coallocate> has nothing to run: it has <resource>, or <coallocate> and <job>, in it"
            raise RslError(message, place)
        is_single = below[0].tag == "resource"
        for other in below:
            if (other.tag == "resource") is not is_single:
                message = f"<{other.tag}> cannot be beside <{below[0].tag}>: put <resource> in a <coallocate>"
                raise RslError(message, (other.line, other.column))
        if is_single:
            self._count(place)
            check_options(options, "job")
            for other in below:
                self._enter(other, depth + 1)
            return SingleStage(tuple(self._job(one, depth + 1, "part") for one in below), options, place)
        check_options(options, "stages")
        return Multistage(tuple(self.request(one, depth + 1) for one in below), options, place)

    def _job(self, element: Element, depth: int, kind: str) -> DescribedJob | NamedJob:
        """Read ``<job>`` or ``<resource>``."""
        place = (element.line, element.column)
        self._count(place)
        if element.tag == "resource" and element.attributes.get("type", "compute") != "compute":
            raise RslError("type is compute: there are no other resources", place)
        own = ("ref", "type") if element.tag == "resource" else ("ref",)
        for one in element.children:
            if one.tag in ("coallocate", "job", "resource"):
                message = f"<{one.tag}> cannot be in <{element.tag}>; options may"
                raise RslError(message, (one.line, one.column))
        options = self._options(element, depth, own)
        check_options(options, kind)
        name = element.attributes.get("ref")
        if name is None:
            if not options:
                message = f"<{element.tag}> has neither ref nor options; it needs one of them"
                raise RslError(message, place)
            return DescribedJob(options, place)
        if not LITERAL.fullmatch(name):
            raise RslError(f"{name!r:.60} cannot be the name of a job", place)
        return NamedJob(name, options, place)

    def _options(self, element: Element, depth: int, own: tuple[str, ...]) -> tuple[Option, ...]:
        return tuple(self._each_option(element, depth, own))

    def _each_option(self, element: Element, depth: int, own: tuple[str, ...]) -> Iterator[Option]:
        places = self._attribute_places(element)
        for name, value in element.attributes.items():
            at, of_value = places.get(name, ((element.line, element.column),) * 2)
            if name == "name" and element.tag == "resource":
                yield Option("contact", (value,), "=", at, (of_value,))
            elif name not in own:
                yield Option(option_name(name, at), (value,), "=", at, (of_value,))
        if element.text.strip():
            place = (element.text_line, element.text_column)
            raise RslError(f"text cannot be here in <{element.tag}>; elements may", place)
        for child in element.children:
            if child.tag not in ("coallocate", "job", "resource"):
                yield self._option(child, depth + 1)

    def _option(self, element: Element, depth: int) -> Option:
        """Read ``<count value="2"/>``, or an option with ``<value>`` elements in it."""
        place = self._enter(element, depth)
        name = option_name(element.tag, place)
        operator = element.attributes.get("op", "=")
        if operator not in _OPERATORS:
            raise RslError(f"op is one of {' '.join(_OPERATORS)}, not {operator!r:.60}", place)
        if unknown := sorted(set(element.attributes) - {"op", "value"}):
            raise RslError(f"<{element.tag}> has no attribute {unknown[0]!r:.60}; value and op", place)
        value = element.attributes.get("value")
        if (value is None) is not bool(element.children):
            message = f"<{element.tag}> needs an attribute value, or <value> elements in it, and one of them"
            raise RslError(message, place)
        if element.text.strip():
            raise RslError(f"text cannot be here in <{element.tag}>; <value> may", place)
        if value is not None:
            of_value = self._attribute_places(element).get("value", (place, place))[1]
            return Option(name, (value,), operator, place, (of_value,))
        values = tuple(self._value(one, depth + 1) for one in element.children)
        places = tuple((one.text_line or one.line, one.text_column or one.column) for one in element.children)
        return Option(name, values, operator, place, places)

    def _value(self, element: Element, depth: int) -> Value:
        place = self._enter(element, depth)
        if element.tag != "value" or element.attributes:
            raise RslError(f"<{element.tag}> cannot be here; <value> without attributes may", place)
        if not element.children:
            return element.text
        if element.text.strip():
            raise RslError("a <value> has either text or <value> elements in it", place)
        return tuple(self._value(one, depth + 1) for one in element.children)

    def _enter(self, element: Element, depth: int) -> Place:
        place = (element.line, element.column)
        if depth > DEPTH_MAX:
            raise RslError(f"elements are nested more than {DEPTH_MAX} deep", place)
        if element.namespace:
            raise RslError(f"<{element.tag}> has a namespace, and requests have none", place)
        return place

    def _count(self, place: Place) -> None:
        self._jobs += 1
        if self._jobs > JOBS_MAX:
            raise RslError(f"there are more than {JOBS_MAX:,} jobs", place)

    def _attribute_places(self, element: Element) -> dict[str, tuple[Place, Place]]:
        """Return where each attribute and its value begin, of those on the first line of an element."""
        if not 0 < element.line <= len(self._lines):
            return {}
        line, at = self._lines[element.line - 1], element.column + len(element.tag)
        places: dict[str, tuple[Place, Place]] = {}
        while (found := _ATTRIBUTE.match(line, at)) is not None:
            places[found[1]] = (element.line, found.start(1) + 1), (element.line, found.start(2) + 2)
            at = found.end()
        return places


def print_xml(request: Request) -> str:
    """Return a request as XML.

    A ``+`` in it, and each ``*``, is a ``<coallocate>``; a name or a ``&`` is a ``<job>``, or in a ``+`` a
    ``<resource>``.
    """
    pieces: list[str] = []
    _print(request, "", "job", pieces)
    return "".join(pieces)


def _print(request: Request, indent: str, tag: str, pieces: list[str]) -> None:
    is_job = isinstance(request, DescribedJob | NamedJob)
    name = tag if is_job else "coallocate"
    start = f"{indent}<{name}"
    if isinstance(request, NamedJob):
        start += f" ref={quoteattr(request.name)}"
    simple = all(
        option.operator == "=" and len(option.values) == 1 and isinstance(option.values[0], str)
        for option in request.options
    )
    if simple:
        for option in request.options:
            start += f" {option.name}={quoteattr(str(option.values[0]))}"
    if is_job and simple:
        pieces.append(f"{start}/>\n")
        return
    pieces.append(f"{start}>\n")
    if not simple:
        for option in request.options:
            operator = "" if option.operator == "=" else f" op={quoteattr(option.operator)}"
            pieces.append(f"{indent}  <{option.name}{operator}>")
            pieces.extend(map(_value_xml, option.values))
            pieces.append(f"</{option.name}>\n")
    if isinstance(request, Multistage):
        for stage in request.stages:
            _print(stage, indent + "  ", "job", pieces)
    elif isinstance(request, SingleStage):
        for part in request.parts:
            _print(part, indent + "  ", "resource", pieces)
    pieces.append(f"{indent}</{name}>\n")


def _value_xml(value: Value) -> str:
    inner = escape(value, {"\r": "&#13;"}) if isinstance(value, str) else "".join(map(_value_xml, value))
    return f"<value>{inner}</value>"
