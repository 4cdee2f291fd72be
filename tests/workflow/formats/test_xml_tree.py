from __future__ import annotations

import pytest

from gspc_trio.workflow.formats.format import FormatError, Source
from gspc_trio.workflow.formats.xml_tree import DEPTH_MAX, Element, parse_xml, xml_text

LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;">]>
<lolz>&lol2;</lolz>
"""


def parse(text: str | bytes) -> Element:
    return parse_xml(Source("f.xml", text.encode() if isinstance(text, str) else text))


def problem(text: str | bytes) -> str:
    with pytest.raises(FormatError) as caught:
        parse(text)
    return str(caught.value)


def test_an_element_knows_where_it_is() -> None:
    root = parse('<a xmlns="urn:x" xmlns:y="urn:y">\n  one<b y:c="1"/><!-- no -->\n two<![CDATA[<]]></a>')
    assert (root.tag, root.namespace, root.text) == ("a", "urn:x", "\n  one\n two<")
    (child,) = root.children
    assert (child.tag, child.attributes, child.line, child.column) == ("b", {"c": "1"}, 2, 6)
    assert root.child("b") is child
    assert root.child("c") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.xml:1:1: this is no XML: no element found"),
        ("<a>\n<b></a>", "f.xml:2:6: this is no XML: mismatched tag"),
        ("<a>&nbsp;</a>", "f.xml:1:4: this is no XML: undefined entity"),
        (LAUGHS, "f.xml:2:1: document types and entities are refused: remove the <!DOCTYPE ...>"),
        ("<!DOCTYPE a SYSTEM 'http://x/y.dtd'><a/>", "f.xml:1:1: document types and entities are refused"),
        (b"<?xml version='1.0' encoding='nonsense'?><a/>", "f.xml:1:"),
        (b"<?xml version='1.0' encoding='utf-7'?><a/>", "f.xml:1:"),
        (b"\xff\xfe\x00", "f.xml:1:"),
        ("<a>" * (DEPTH_MAX + 1), f"elements are nested more than {DEPTH_MAX} deep"),
    ],
)
def test_what_is_no_xml_is_told_in_one_line(text: str | bytes, message: str) -> None:
    told = problem(text)
    assert message in told
    assert "\n" not in told


def test_a_written_element_reads_back() -> None:
    element = parse('<a b="&lt;&quot;&#10;">\n <c xmlns="urn:c">&amp;<d/></c><e> x </e></a>')
    again = parse(xml_text(element))

    def plain(one: Element) -> object:
        text = one.text.strip() if one.children else one.text
        return one.tag, one.namespace, one.attributes, text, [plain(child) for child in one.children]

    assert plain(again) == plain(element)
