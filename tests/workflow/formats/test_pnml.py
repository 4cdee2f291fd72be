from __future__ import annotations

import pytest

from gspc_trio.workflow.definition import SettingError
from gspc_trio.workflow.formats.format import Format, ReadOptions, Source, find_format, recognise
from gspc_trio.workflow.formats.pnml.files import PnmlFormat
from gspc_trio.workflow.formats.pnml.running import PnmlWorkflow
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.structure import EndlessLoop
from tests.workflow.formats.support import problems_of, run_to_end
from tests.workflow.support import engine_for

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
    assert found.groups == {("place", "buffer"): ("inner",), ("transition", "produce"): ("inner",)}


def test_people_see_the_names_of_the_file() -> None:
    status = engine_for(read(ISO).net).describe()
    assert [(place.name, place.kind.value, place.tokens) for place in status.places] == [
        ("ready", "place", 3),
        ("buffer", "place", 0),
        ("p3", "output", 0),
    ]
    assert [transition.name for transition in status.transitions] == ["produce", "t2"]


def test_settings_add_tokens() -> None:
    assert final_marking(ISO, ("ready=1", "p1=1", "buffer = 2")) == {"ready": 0, "buffer": 0, "p3": 4}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("raedy=1", "there is no place 'raedy'; the places are: buffer, p3, ready (did you mean 'ready'?)"),
        ("ready=x", "ready=x: a number of tokens from 0 to 10,000,000 is needed, such as ready=1"),
        ("ready=²", "a number of tokens"),
    ],
)
def test_wrong_settings_are_told(setting: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        read(ISO).workflow([setting])
    assert message in str(caught.value)


def test_a_token_that_is_put_is_written_1() -> None:
    found = read(ISO)
    assert found.parse_value("ready", " 1") is None  # type: ignore[func-returns-value]
    with pytest.raises(
        SettingError, match="a token for 'ready' is written 1, not 'x': tokens of PNML have no"
    ):
        found.parse_value("ready", "x")


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


def test_a_net_that_never_ends_is_told_to_need_a_bound() -> None:
    text = net(
        "<place id='p'><initialMarking><text>1</text></initialMarking></place><transition id='t'/>"
        "<arc id='a' source='p' target='t'/><arc id='b' source='t' target='p'/>"
    )
    found = read(text)
    found.net.inline_firings_max = 10
    with pytest.raises(EndlessLoop, match="would never stop: give --firings N, how often transitions fire"):
        run_to_end(found.workflow(["p=1"]))
    assert final_marking(text, firings=1000) == {"p": 1}


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


PROM = """<?xml version="1.0" encoding="ISO-8859-1"?>
<pnml><net id="net1" type="http://www.pnml.org/version-2009/grammar/pnmlcoremodel">
<name><text>orders</text></name>
<page id="n0"><name><text/></name>
  <place id="n1"><name><text>start</text></name>
    <toolspecific tool="ProM" version="6.4" localNodeID="a-b"/>
    <graphics><position x="10.0" y="0.0"/></graphics>
    <initialMarking><text>1</text></initialMarking></place>
  <place id="n2"><name><text>end</text></name></place>
  <transition id="n3"><name><text>check + send</text></name>
    <toolspecific tool="ProM" version="6.4" activity="$invisible$" localNodeID="c-d"/></transition>
  <arc id="arc4" source="n1" target="n3"><name><text>1</text></name>
    <arctype><text>normal</text></arctype></arc>
  <arc id="arc5" source="n3" target="n2"><name><text>1</text></name>
    <arctype><text>normal</text></arctype></arc>
</page>
<finalmarkings><marking><place idref="n2"><text>1</text></place></marking></finalmarkings>
</net></pnml>
"""

WOPED = """<?xml version="1.0" encoding="UTF-8"?>
<!--written by a designer of workflow nets-->
<pnml><net type="http://www.informatik.hu-berlin.de/top/pntd/ptNetb" id="noID">
  <place id="p1"><name><text>in</text><graphics><offset x="40" y="80"/></graphics></name>
    <graphics><position x="40" y="40"/><dimension x="40" y="40"/></graphics>
    <initialMarking><text>1</text></initialMarking></place>
  <place id="p2"><name><text>in</text></name></place>
  <transition id="t1"><name><text>work</text></name>
    <toolspecific tool="WoPeD" version="1.0"><time>0</time><timeUnit>1</timeUnit></toolspecific></transition>
  <arc id="a1" source="p1" target="t1"><inscription><text>1</text></inscription>
    <toolspecific tool="WoPeD" version="1.0"><probability>1.0</probability></toolspecific></arc>
  <arc id="a2" source="t1" target="p2"><inscription><text>1</text></inscription></arc>
  <toolspecific tool="WoPeD" version="1.0"><bounds><dimension x="9" y="9"/></bounds></toolspecific>
</net></pnml>
"""

TAPAAL = """<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<pnml xmlns="http://www.informatik.hu-berlin.de/top/pnml/ptNetb">
  <net active="true" id="TAPN1" type="P/T net">
    <place displayName="true" id="P0" initialMarking="2" invariant="&lt; inf" name="P0" positionX="9"/>
    <place displayName="true" id="P1" initialMarking="0" invariant="&lt; inf" name="out" positionX="9"/>
    <transition angle="0" id="T0" infiniteServer="false" name="T0" player="0" priority="0" urgent="false"/>
    <arc id="A0" inscription="[0,inf)" source="P0" target="T0" type="timed" weight="2"><arcpath id="0"/></arc>
    <arc id="A1" inscription="3" source="T0" target="P1" type="normal" weight="1"/>
  </net>
  <k-bound bound="3"/><feature isGame="false" isTimed="false"/>
</pnml>
"""

PIPE = """<pnml><net id="Net-One" type="P/T net"><token id="Default" enabled="true"/>
  <place id="P0"><name><value>P0</value></name><initialMarking><value>Default,2</value></initialMarking>
    <capacity><value>0</value></capacity></place>
  <transition id="T0"><name><value>T0</value></name><rate><value>1.0</value></rate>
    <timed><value>false</value></timed><priority><value>1</value></priority></transition>
  <arc id="P0 to T0" source="P0" target="T0"><inscription><value>Default,1</value></inscription>
    <type value="normal"/></arc></net></pnml>
"""


@pytest.mark.parametrize(
    ("text", "marking"),
    [
        (PROM, {"start": 0, "end": 1}),
        (WOPED, {"in (p1)": 0, "in (p2)": 1}),
        (TAPAAL, {"P0": 0, "out": 1}),
        (PIPE, {"P0": 0}),
    ],
    ids=["prom", "woped", "tapaal", "pipe"],
)
def test_files_of_other_tools_are_read(text: str, marking: dict[str, int]) -> None:
    assert final_marking(text) == marking
    written = PNML.write(read(text).net, read(text)).data.decode()
    assert final_marking(written) == marking
    for kept in ("localNodeID=", "<time>0</time>", "probability", "<position"):
        assert (kept in written) == (kept in text)


def test_what_counts_for_nothing_is_noted() -> None:
    notes = [str(note) for note in read(PIPE).notes]
    assert notes == [
        "f:1:40: token counts for nothing here",
        "f:4:53: rate counts for nothing here",
        "f:5:5: timed counts for nothing here",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<a/>", "f:1:1: this is no PNML: the outermost element is 'a', not pnml"),
        ("<pnml/>", "f:1:1: there is no net in it"),
        ("<pnml><net id='a'/><net id='b'/></pnml>", "there are 2 nets in it: choose one by --net: a, b"),
        ("<pnml><net id='n' type='http://x/grammar/symmetricnet'/></pnml>", "coloured tokens are refused"),
        (net("<place id='p'><hlinitialMarking/></place>"), "place 'p': coloured tokens are refused"),
        (net("<place id='p'><type><structure><x/></structure></type></place>"), "coloured tokens"),
        (net("<declaration><structure><x/></structure></declaration>"), "declarations of colours"),
        (net("<place id='p'><capacity><text>3</text></capacity></place>"), "a capacity (3) is refused"),
        (net("<place id='p' invariant='&lt;= 4'/>"), "place 'p': time (<= 4) is refused"),
        (net("<transition id='t' urgent='true'/>"), "transition 't': time (urgent) is refused"),
        (net("<transition id='t' priority='0'/><transition id='u' priority='1'/>"), "priorities of trans"),
        (net("<page id='p'><net id='m'/></page>"), "a net inside of a page is refused"),
        ("<pnml><shared-place name='p'/><net id='n'/></pnml>", "shared-place is refused: make one net"),
        (net("<place id='p'><initialMarking><text>99999999</text></initialMarking></place>"), "is allowed"),
        (net("<place id='p'><initialMarking><text>-1</text></initialMarking></place>"), "is -1; 0 to 10"),
        (
            net("<referencePlace id='r' ref='s'/><referencePlace id='s' ref='r'/><transition id='t'/>"
                "<arc id='a' source='r' target='t'/>"),
            "arc 'a': the reference 'r' leads to itself",
        ),
        (
            net("<referencePlace id='r' ref='t'/><transition id='t'/><arc id='a' source='r' target='t'/>"),
            "arc 'a': the reference 'r' of a place leads to 't', which is none",
        ),
        (
            net("<place id='p'/><transition id='t'/><arc id='a' source='p' target='t' inscription='[1,2]'/>"),
            "arc 'a': time ([1,2]) is refused",
        ),
        (net("<place id='p'/><transition id='t'/><arc id='a' type='transport'/>"), "transport arcs"),
        (net("<arc id='a' source='x' target='y' type='new'/>"), "arcs of the type 'new' are refused"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(text: str, message: str) -> None:
    lines = problems_of(PNML, text)
    assert any(message in line for line in lines), lines


def test_one_of_several_nets_is_chosen() -> None:
    text = "<pnml><net id='a'/><net id='b'><place id='p'/></net></pnml>"
    assert final_marking(text, net="b") == {"p": 0}
    assert problems_of(PNML, text, ReadOptions(net="c")) == ["f:1:1: there is no net 'c'; there are: a, b"]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (
            {},
            "no function has the name or id of a transition; functions: none; transitions: produce, t2",
        ),
        ({"t2": lambda x: x}, "transition 't2': its function asks for 'x', and it takes from buffer"),
    ],
)
def test_functions_that_do_not_fit_are_told(tasks: dict[str, object], message: str) -> None:
    assert message in problems_of(PNML, ISO, ReadOptions(tasks=tasks))[0]  # type: ignore[arg-type]


def test_what_tasks_need_is_kept() -> None:
    made = Net("n")
    made.place("p", [None])
    run = {"requires": ["core", "gpu"], "attempts": 3, "priority": 4, "in_flight": 2}
    made.transition("t", lambda: None, {"_p": "p"}, [], **run)  # type: ignore[arg-type]
    written = PNML.write(made, None)
    assert written.lost == ("transition 't': what its tasks run: give functions by --tasks",)
    transition = read(written.data.decode(), tasks={"t": lambda: None}).net.transitions["t"]
    before = made.transitions["t"]
    for name in ("shape", "options", "in_flight", "priority"):
        assert getattr(transition, name) == getattr(before, name)
    (problem,) = problems_of(PNML, written.data.decode().replace('"attempts": 3', '"attempts": "x"'))
    assert "what its tasks need is badly written: Expected `int`, got `str`" in problem
