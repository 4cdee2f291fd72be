"""Nets of xpnet inside tests: read from a text, and run to their end without tasks."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence

import pytest

from gspc_trio.workflow.activities import engine_of
from gspc_trio.workflow.formats.format import ForeignWorkflow, FormatError, ReadOptions, Source
from gspc_trio.workflow.formats.xpnet.files import XpnetFormat


def read(text: str, files: Mapping[str, str] | None = None) -> ForeignWorkflow:
    found = {name: one.encode() for name, one in (files or {}).items()}
    return XpnetFormat().read(Source("net.xpnet", text.encode(), found.get), ReadOptions())


def net(body: str, ports: str = "") -> str:
    """A whole file: ports, and what is in its net."""
    return f'<defun name="main">{ports}<net>{body}</net></defun>'


def place(name: str, kind: str = "int", tokens: Sequence[str] = (), attributes: str = "") -> str:
    values = "".join(f"<token><value>{token}</value></token>" for token in tokens)
    return f'<place name="{name}" type="{kind}" {attributes}>{values}</place>'


def outputs(text: str, *settings: str, files: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Output port -> values as xpnet writes them, after all that is inline has fired."""
    foreign = read(text, files)
    workflow = foreign.workflow(settings)
    engine = engine_of(workflow.net, workflow.values, dumps=pickle.dumps, loads=pickle.loads)
    while engine.next() is not None or engine.has_more:
        pass
    engine.check()
    found: dict[str, list[str]] = {}
    for line in foreign.show_outputs(engine.outputs()):
        port, _, value = line.partition(": ")
        found.setdefault(port, []).append(value)
    return found


def problems(text: str, files: Mapping[str, str] | None = None) -> list[str]:
    """What is wrong with a file, without its name."""
    with pytest.raises(FormatError) as caught:
        read(text, files)
    return [str(problem).removeprefix("net.xpnet:") for problem in caught.value.problems]


STEP = """
<transition name="step" {attributes}>
  <defun>
    <in name="x" type="int"/><out name="y" type="int"/>
    <expression>${{y}} := {expression}</expression>
  </defun>
  <connect-in port="x" place="a"/><connect-out port="y" place="b"/>{more}
</transition>
"""
OUT = '<out name="b" type="int" place="b"/>'


def step(expression: str = "${x} + 1", more: str = "", attributes: str = "") -> str:
    return STEP.format(expression=expression, more=more, attributes=attributes)


INNER = """
<defun>
  <in name="x" type="int" place="x"/><out name="y" type="int" place="y"/>
  <net>
    <place name="x" type="int"/><place name="y" type="int"/>{more}
    <transition name="inc">
      <defun>
        <in name="x" type="int"/><out name="y" type="int"/><expression>${{y}} := ${{x}} + 1</expression>
      </defun>
      <connect-in port="x" place="x"/><connect-out port="y" place="y"/>
    </transition>
  </net>
</defun>
"""


def subnet(attributes: str = 'inline="true"', more: str = "", inside: str = "") -> str:
    return f"""
    <transition name="sub" {attributes}>{INNER.format(more=inside)}
      <connect-in port="x" place="a"/><connect-out port="y" place="b"/>{more}
    </transition>"""
