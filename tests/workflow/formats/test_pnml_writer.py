"""Whatever net is written reads back to the same net; whatever is read raises nothing but FormatError."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.workflow.formats.format import FormatError, ReadOptions, Source
from gspc_trio.workflow.formats.pnml.files import PnmlFormat
from gspc_trio.workflow.formats.pnml.from_net import pnml_of
from gspc_trio.workflow.formats.pnml.model import PnmlArc, PnmlNet, PnmlNode, PnmlPage
from gspc_trio.workflow.formats.pnml.reader import read_pnml
from gspc_trio.workflow.formats.pnml.running import running_workflow
from gspc_trio.workflow.formats.pnml.writer import write_pnml
from gspc_trio.workflow.formats.xml_tree import Element
from gspc_trio.workflow.net import Net, Transition
from tests.workflow.formats.test_pnml import ISO, PIPE, PROM, TAPAAL, WOPED

CHARACTERS = st.characters(min_codepoint=33, exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp", "Cn"])
NAMES = st.text(CHARACTERS, max_size=6)
KEPT = st.lists(
    st.builds(
        Element,
        st.just("toolspecific"),
        st.sampled_from(["", "urn:x"]),
        st.dictionaries(st.sampled_from(["tool", "version"]), st.text(CHARACTERS, max_size=3)),
        text=st.text(CHARACTERS, max_size=3),
        children=st.lists(st.builds(Element, st.just("x"), st.just("urn:x"), text=NAMES), max_size=2),
    ),
    max_size=1,
)


@st.composite
def nets(draw: st.DrawFn) -> PnmlNet:
    """A net with pages in pages, whose nodes have all kinds of names."""
    net = PnmlNet(draw(st.sampled_from(["n", "top", 'a"<&\n'])), draw(NAMES), kept=draw(KEPT))
    for number in range(draw(st.integers(0, 3))):
        parent = draw(st.sampled_from(["", *net.pages]))
        net.pages[f"page{number}"] = PnmlPage(f"page{number}", draw(NAMES), parent, draw(KEPT))
    page = st.sampled_from(["", *net.pages])
    for number in range(draw(st.integers(0, 4))):
        node = PnmlNode(f"p{number}", draw(NAMES), draw(page), draw(st.integers(0, 20)), kept=draw(KEPT))
        net.places[node.id] = node
    for number in range(draw(st.integers(0, 4))):
        node = PnmlNode(f"t{number}", draw(NAMES), draw(page), kept=draw(KEPT))
        net.transitions[node.id] = node
    if net.places and net.transitions:
        for number in range(draw(st.integers(0, 8))):
            ends = [draw(st.sampled_from([*net.places])), draw(st.sampled_from([*net.transitions]))]
            source, target = draw(st.permutations(ends))
            net.arcs.append(PnmlArc(f"a{number}", source, target, draw(st.integers(1, 9)), kept=draw(KEPT)))
    return net


def plain(net: PnmlNet) -> object:
    """Return all of a net but where it is written."""

    def without(value: object) -> object:
        if isinstance(value, dict):
            if value.get("children"):
                value["text"] = value["text"].strip()
            named = {
                name: without(each) for name, each in value.items() if not name.endswith(("line", "column"))
            }
            return named if named.get("id") != "" else None
        if isinstance(value, list | tuple):
            return [without(each) for each in value]
        return value

    said = without(msgspec.to_builtins(net))
    assert isinstance(said, dict)
    said["arcs"] = sorted(said["arcs"], key=lambda arc: arc["id"])
    for kind in ("places", "transitions", "pages"):
        said[kind] = dict(sorted(said[kind].items()))
    return said


@settings(max_examples=80)
@given(nets())
def test_what_is_written_reads_back_to_the_same_net(net: PnmlNet) -> None:
    text = write_pnml(net)
    again, notes = read_pnml(Source("f", text.encode()))
    assert plain(again) == plain(net)
    assert notes == []
    assert write_pnml(again) == text


def shape(net: Net) -> Mapping[str, object]:
    """Return places and transitions of a net, arcs of a transition in no order."""

    def arcs(transition: Transition) -> object:
        taken = sorted((arc.place, arc.least, arc.most) for arc in transition.inputs)
        return taken, sorted((arc.place, arc.copies) for arc in transition.output_arcs)

    places = {name: (tuple(place.initial), place.is_output) for name, place in net.places.items()}
    return {"places": places, "transitions": {name: arcs(one) for name, one in net.transitions.items()}}


@settings(max_examples=50)
@given(nets())
def test_a_running_net_is_the_same_after_it_was_written(net: PnmlNet) -> None:
    options, source = ReadOptions(firings=5), Source("f", b"")
    running = running_workflow(net, source, options, ())
    written, lost = pnml_of(running.net, running.groups)
    assert {line for line in lost if not line.startswith("the net: the name")} <= {
        "place '(firings)': the values of its tokens"
    }
    again = running_workflow(written, source, ReadOptions(), ())
    assert shape(again.net)["transitions"] == shape(running.net)["transitions"]


TASK = "<toolspecific tool='gspc-trio'><task>%s</task></toolspecific>"
PIECES = st.sampled_from(
    [
        *(
            "<",
            ">",
            "/>",
            "</",
            "&",
            "&#0;",
            "&lt;",
            '"',
            "'",
            " ",
            "\n",
            "\x00",
            "\xff",
            "<!--",
            "<![CDATA[",
        ),
        *("<page id='q'>", "</page>", "<place", "<arc", "source='n1'", "target='p1'", "id='p1'", "<net>"),
        *("<![CDATA[", "</net>", "weight='0'", "1e9", "-1", "²", "xmlns='urn:x'", "xmlns:a=''", "a:b='c'"),
        *("<referencePlace id='z' ref='z'/>", "<hlinscription/>", "<!DOCTYPE pnml>", TASK % "{"),
        *(TASK % '{"shape": {"requirements": [1]}}', TASK % '{"options": null}', TASK % "[[[]]]"),
    ]
)


@settings(max_examples=150)
@given(
    st.sampled_from([ISO, PROM, WOPED, TAPAAL, PIPE]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30), PIECES), max_size=6),
    st.floats(0, 1),
)
def test_nothing_but_its_own_error_leaves_the_reader(
    text: str, changes: list[tuple[float, int, str]], end: float
) -> None:
    for where, length, piece in changes:
        at = int(where * len(text))
        text = text[:at] + piece + text[at + length :]
    if end < 0.3:
        text = text[: int(end / 0.3 * len(text))]
    functions = {"t1": lambda: None, "n3": lambda **_: None}
    for options in (ReadOptions(), ReadOptions(tasks=functions, firings=3)):
        try:
            found = PnmlFormat().read(Source("f", text.encode()), options)
        except FormatError as error:
            assert str(error).startswith("f:")  # noqa: PT017
        else:
            found.workflow()
