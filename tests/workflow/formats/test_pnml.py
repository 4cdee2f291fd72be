from __future__ import annotations

import pytest

from gspc_trio.workflow.definition import SettingError
from gspc_trio.workflow.formats.format import Format, ReadOptions, Source, find_format, recognise
from gspc_trio.workflow.formats.pnml.files import PnmlFormat
from gspc_trio.workflow.formats.pnml.running import PnmlWorkflow
from tests.workflow.formats.support import problems_of, run_to_end

PNML: Format = PnmlFormat()

ISO = """<?xml version="1.0" encoding="UTF-8"?>
<pnml xmlns="http://www.pnml.org/version-2009/grammar/pnml">
  <net id="n1" type="http://www.pnml.org/version-2009/grammar/ptnet">
    <name><text>producer and consumer</text></name>
    <page id="top">
      <name><text>all</text></name>
      <place id="p1"><name><text>ready</text></name><initialMarking><text>3</text></initialMarking></place>
      <page id="inner">
        <referencePlace id="r1" ref="r2"/>
        <referencePlace id="r2" ref="p1"/>
        <place id="p2"><name><text>buffer</text></name></place>
        <transition id="t1"><name><text>produce</text></name></transition>
        <arc id="a1" source="r1" target="t1"/>
        <arc id="a2" source="t1" target="p2"><inscription><text>2</text></inscription></arc>
      </page>
      <place id="p3"/>
      <transition id="t2"/>
      <arc id="a3" source="p2" target="t2"><inscription><text>3</text></inscription></arc>
      <arc id="a4" source="t2" target="p3"/>
    </page>
  </net>
</pnml>
"""


def read(text: str, **options: object) -> PnmlWorkflow:
    found = PNML.read(Source("f", text.encode()), ReadOptions(**options))  # type: ignore[arg-type]
    assert isinstance(found, PnmlWorkflow)
    return found


def final_marking(text: str, settings: tuple[str, ...] = (), **options: object) -> object:
    found = read(text, **options)
    return found.plain_outputs(run_to_end(found.workflow(settings)))


def net(body: str) -> str:
    return f"<pnml><net id='n'>{body}</net></pnml>"


def test_a_net_of_pages_and_references_runs() -> None:
    assert final_marking(ISO) == {"ready": 0, "buffer": 0, "p3": 2}
    found = read(ISO)
    assert found.net.name == "producer and consumer"
    assert found.groups["place", "buffer"] == ("all", "inner")
    assert found.groups["transition", "t2"] == ("all",)


def test_settings_add_tokens() -> None:
    assert final_marking(ISO, ("ready=1", "p1=1", "buffer = 2")) == {"ready": 0, "buffer": 0, "p3": 4}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("raedy=1", "there is no place 'raedy' (did you mean 'ready'?)"),
        ("ready=x", "ready=x: a number of tokens from 0 to 10,000,000 is needed, such as ready=1"),
        ("ready=²", "a number of tokens"),
    ],
)
def test_wrong_settings_are_told(setting: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        read(ISO).workflow([setting])
    assert message in str(caught.value)


def test_functions_are_tasks() -> None:
    found = read(ISO, tasks={"produce": lambda: "x", "t2": lambda buffer: "".join(buffer)})
    outputs = run_to_end(found.workflow())
    assert outputs["p3"] == ["xxx", "xxx"]


def test_a_source_transition_needs_a_bound() -> None:
    text = net("<place id='p'/><transition id='t'/><arc id='a' source='t' target='p'/>")
    assert problems_of(PNML, text) == [
        "f:1:34: transition 't' takes no tokens, so it can fire for ever: give --firings N, how often "
        "transitions fire at most, all together"
    ]
    assert final_marking(text, firings=7) == {"p": 7}


def test_all_problems_are_told_at_once() -> None:
    text = net(
        "<place id='p'/>\n<place id='p'/>\n<place/>\n"
        "<place id='q'><initialMarking><text>many</text></initialMarking></place>\n"
        "<transition id='t'/><arc id='a' source='p' target='q'/>\n"
        "<arc id='b' source='p' target='tt'/>\n"
        "<arc id='c' source='p' target='t'><inscription><text>0</text></inscription></arc>\n"
        "<arc id='d' source='p' target='t' type='inhibitor'/>\n"
        "<arc id='e' source='p' target='t'><arctype><text>reset</text></arctype></arc>"
    )
    assert problems_of(PNML, text) == [
        "f:2:1: the id 'p' is that of the place in line 1, too",
        "f:3:1: this place has no id",
        "f:4:15: place 'q': initialMarking is 'many', and a whole number is needed",
        "f:5:21: arc 'a' goes from 'p' to 'q', and both are places",
        "f:6:1: arc 'b': there is no place or transition 'tt'",
        "f:7:35: arc 'c': inscription is 0; 1 to 1,000,000 is allowed",
        "f:8:1: arc 'd': inhibitor arcs are refused: only normal arcs are read",
        "f:9:1: arc 'e': reset arcs are refused: only normal arcs are read",
    ]


def test_suffix_and_content_say_that_it_is_pnml() -> None:
    assert isinstance(find_format("pnml"), PnmlFormat)
    for suffix, head in ((".pnml", b""), (".PNML", b""), (".xml", b"<?xml version='1.0'?><pnml>")):
        assert isinstance(recognise(suffix, head), PnmlFormat)
    assert recognise(".txt", b"hello") is None
