"""XML as a small tree of elements with positions, by the standard library's expat.

Document types, and with them entities, are refused: none of the formats needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from msgspec import Struct, field

from gspc_trio.workflow.formats.format import FormatError, Source

DEPTH_MAX = 200
"""How deep elements may be nested."""

ELEMENTS_MAX = 3_000_000
"""How many elements a file may have."""


class Element(Struct, eq=False, gc=False):
    """An element of an XML file. It knows nothing of the one around it, so there are no cycles to collect.

    Attributes:
        tag: its name, without the namespace.
        namespace: its namespace, "" if it has none.
        attributes: name -> value; names without their namespaces.
        line, column: where it begins, both from 1 on.
        text: all characters that are directly in it; of those between its children nothing if all are blank.
        text_line, text_column: where the text begins.
        children: the elements that are directly in it.
    """

    tag: str
    namespace: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    line: int = 0
    column: int = 0
    text: str = ""
    children: Sequence[Element] = ()
    text_line: int = 0
    text_column: int = 0

    def child(self, tag: str) -> Element | None:
        """Return the first child with this tag, None if there is none."""
        for child in self.children:
            if child.tag == tag:
                return child
        return None

    def all(self, tag: str) -> Iterator[Element]:
        """Return the children with this tag."""
        return (child for child in self.children if child.tag == tag)


class _Builder:
    """Builds the tree as expat tells of its parts."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.root: Element | None = None
        self.parser = expat.ParserCreate(namespace_separator="\n")
        self.parser.buffer_text = False  # positions of texts would be those of what comes behind them
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.doctype
        self._open: list[Element] = []
        self._texts: list[list[str] | None] = []
        self._names: dict[str, tuple[str, str]] = {}
        self._count = 0

    def refuse(self, message: str) -> FormatError:
        line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1
        return FormatError([self.source.problem(message, line, column)])

    def doctype(self, *_: object) -> None:
        message = "document types and entities are refused: remove the <!DOCTYPE ...>"
        before, found, _after = self.source.data.partition(b"<!DOCTYPE")
        if not found:
            raise self.refuse(message)
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        raise FormatError([self.source.problem(message, line, column)])

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > ELEMENTS_MAX:
            raise self.refuse(f"there are more than {ELEMENTS_MAX:,} elements")
        if len(self._open) >= DEPTH_MAX:
            raise self.refuse(f"elements are nested more than {DEPTH_MAX} deep")
        known = self._names.get(name)
        if known is None:
            namespace, _, tag = name.rpartition("\n")
            known = self._names[name] = tag, namespace
        if "\n" in "".join(attributes):
            attributes = {key.rpartition("\n")[2]: value for key, value in attributes.items()}
        parser = self.parser
        element = Element(*known, attributes, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)
        if self._open:
            around = self._open[-1]
            if isinstance(around.children, list):
                around.children.append(element)
            else:
                around.children = [element]
        else:
            self.root = element
        self._open.append(element)
        self._texts.append(None)

    def end(self, _: str) -> None:
        element, texts = self._open.pop(), self._texts.pop()
        if texts is not None:
            text = "".join(texts)
            element.text = text if not element.children or not text.isspace() else ""

    def characters(self, text: str) -> None:
        texts = self._texts[-1]
        if texts is None:
            self._texts[-1] = [text]
            element, parser = self._open[-1], self.parser
            element.text_line, element.text_column = parser.CurrentLineNumber, parser.CurrentColumnNumber + 1
        else:
            texts.append(text)


def parse_xml(source: Source) -> Element:
    """Return the root element of an XML file.

    Raises:
        FormatError: it is no well-formed XML, has a document type, or is too large or too deep.
    """
    builder = _Builder(source)
    parser = builder.parser
    try:
        parser.Parse(source.data, True)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code) or "it is not well-formed"
        message = f"this is no XML: {what}"
        raise FormatError([source.problem(message, error.lineno, error.offset + 1)]) from None
    except FormatError:
        raise
    except (ValueError, LookupError) as error:  # the encoding that it states
        raise FormatError([source.problem(f"its encoding cannot be read: {error}", 1, 1)]) from None
    finally:
        del builder.parser  # which knows the builder: a circle with the whole tree in it
    assert builder.root is not None
    return builder.root


def xml_text(element: Element, indent: str = "", namespace: str = "") -> str:
    """Return an element as lines of XML.

    Args:
        element: what to write; text between children comes before them.
        indent: before each line.
        namespace: the default namespace around it.
    """
    attributes = "".join(f" {name}={quoteattr(value)}" for name, value in element.attributes.items())
    if element.namespace != namespace:
        attributes = f" xmlns={quoteattr(element.namespace)}{attributes}"
    start = f"{indent}<{element.tag}{attributes}"
    text = element.text if not element.children else element.text.strip()
    if not element.children:
        return f"{start}>{_escaped(text)}</{element.tag}>\n" if text else f"{start}/>\n"
    inner = "".join(xml_text(child, indent + "  ", element.namespace) for child in element.children)
    return f"{start}>{_escaped(text)}\n{inner}{indent}</{element.tag}>\n"


def _escaped(text: str) -> str:
    return escape(text, {"\r": "&#13;"})
