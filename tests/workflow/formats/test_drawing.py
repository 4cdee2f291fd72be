from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

from gspc_trio.workflow.arcs import each, take
from gspc_trio.workflow.formats.drawing import Drawing, dot_of, drawing_of, mermaid_of
from gspc_trio.workflow.formats.svg import svg_of
from gspc_trio.workflow.net import Net

DOT = r"""digraph "a \"net\"" {
  rankdir=LR;
  node [shape=ellipse, fontname="sans"];
  p0 [label="items", peripheries=2];
  p1 [label="permit\n●●"];
  subgraph cluster1 { label="inner";
    p2 [label="results", peripheries=2];
    subgraph cluster2 { label="most";
      t0 [label="work", shape=box, peripheries=2];
    }
  }
  p0 -> t0 [label="2"];
  p1 -> t0 [style=dashed];
  t0 -> p2 [label="each"];
}
"""

MERMAID = """flowchart LR
  p0((("items")))
  p1(("permit<br/>●●"))
  subgraph g1 ["inner"]
    p2((("results")))
    subgraph g2 ["most"]
      t0[["work"]]
    end
  end
  p0 -->|"2"| t0
  p1 -.-> t0
  t0 -->|"each"| p2
"""


def picture() -> Drawing:
    net = Net('a "net"')
    items, permit = net.input("items"), net.place("permit", [1, 2], may_keep=True)
    results = net.output("results")
    net.transition("work", print, [take(items, 2)], [each(results)], reads=[permit])
    groups = {("place", "results"): ("inner",), ("transition", "work"): ("inner", "most")}
    return drawing_of(net, groups)


def test_a_picture_for_graphviz() -> None:
    assert dot_of(picture()) == DOT


def test_a_picture_for_mermaid() -> None:
    assert mermaid_of(picture()) == MERMAID


def test_a_picture_without_graphviz() -> None:
    root = ElementTree.fromstring(svg_of(picture()))
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert set(texts) == {"items", "permit", "●●", "results", "work", "2", "each", "inner", "most"}
    inner, most, *_ = [element for element in root.iter() if element.tag.endswith("rect")]
    (work,) = [one for one in root.iter() if one.findtext("{*}title") == "inner / most / work"]
    sizes = ("x", "y", "width", "height")
    boxes = [[float(one.get(key, "")) for key in sizes] for one in (inner, most, work[1])]
    for (x, y, width, height), (in_x, in_y, in_width, in_height) in pairwise(boxes):
        assert x < in_x < in_x + in_width < x + width
        assert y < in_y < in_y + in_height < y + height
    assert svg_of(drawing_of(Net("empty"))).startswith("<svg")


def test_many_tokens_are_a_number() -> None:
    net = Net("n")
    net.place("p", range(1000), may_keep=True)
    net.place("p" * 100, may_keep=True)
    first, second = drawing_of(net).nodes
    assert first.label == "p\n1000 ●"
    assert second.label == "p" * 60 + "..."
