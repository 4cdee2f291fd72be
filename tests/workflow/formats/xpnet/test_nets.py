"""Nets of xpnet: what each construct does, and what is said of a file that is wrong."""

from __future__ import annotations

import pickle
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.definition import SettingError
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.formats.format import FormatError
from gspc_trio.workflow.tokens import Asker
from tests.workflow.formats.xpnet.nets import INNER, OUT, net, outputs, place, problems, read, step, subnet

EXAMPLES = Path(__file__).parents[4] / "examples" / "xpnet"


def test_an_expression_fires_for_each_token() -> None:
    text = net(place("a", tokens=("1", "2")) + place("b") + step(), OUT)
    assert outputs(text) == {"b": ["2", "3"]}


def test_tokens_of_a_port_come_to_those_that_are_there() -> None:
    ports = '<in name="a" type="int" place="a"/>' + OUT
    text = net(place("a", tokens=("1",)) + place("b") + step(), ports)
    assert outputs(text, "a=5", "a=7") == {"b": ["2", "6", "8"]}


def test_a_port_of_another_name_than_its_place() -> None:
    ports = '<in name="n" type="int" place="a"/><out name="a" type="int" place="b"/>'
    assert outputs(net(place("a") + place("b") + step(), ports), "n=3") == {"a": ["4"]}


def test_ports_of_one_place_share_its_tokens() -> None:
    ports = '<in name="n" type="int" place="a"/><in name="k" type="int" place="a"/>'
    ports += '<out name="left" type="int" place="a"/><out name="rest" type="int" place="a"/>' + OUT
    more = "<condition>${x} :gt: 1</condition>"
    text = net(place("go", tokens=("0",)) + place("a") + place("b") + step(more=more), ports)
    assert outputs(text, "n=1", "k=7") == {"left": ["1"], "rest": ["1"], "b": ["8"]}
    with pytest.raises(WorkflowError, match="needs values for its input port 'k'"):
        read(text.replace('name="n" type="int" place="a"', 'name="n" type="int" place="go"')).workflow(
            ["n=1"]
        )
    with pytest.raises(SettingError, match="there is no input port 'm'; the input ports are: n, k"):
        read(text).workflow(["m=1"])  # that others want values is not what is wrong first


def test_a_place_in_the_way_of_a_port_gets_another_name() -> None:
    ports = '<in name="b" type="int" place="a"/><out name="c" type="int" place="b"/>'
    text = net(place("a") + place("b") + step(), ports)
    assert outputs(text, "b=1") == {"c": ["2"]}
    text = net(place("a") + place("b") + step(), '<in name="b" type="int" place="a"/>')
    assert list(read(text).net.places) == ["b", "b'"]
    text = net(place("a") + place("b", attributes='put_token="true"') + step(), ports)
    assert "tokens are put to the place 'b', and the port 'b' in line 1 is of another" in problems(text)[0]


def test_all_conditions_have_to_hold() -> None:
    more = "<condition>${x} :gt: 1</condition><condition>${x} :lt: 3</condition>"
    text = net(place("a", tokens=("1", "2", "3")) + place("b") + step(more=more), OUT)
    assert outputs(text) == {"b": ["3"]}


def test_a_list_falls_apart_into_tokens() -> None:
    text = net(
        place("a", tokens=("3",))
        + place("b")
        + place("whole", "list")
        + """
        <transition name="split">
          <defun>
            <in name="x" type="int"/><out name="all" type="list"/>
            <expression>${all} := List (${x}, 2 * ${x})</expression>
          </defun>
          <connect-in port="x" place="a"/>
          <connect-out-many port="all" place="b"/><connect-out port="all" place="whole"/>
        </transition>""",
        OUT + '<out name="whole" type="list" place="whole"/>',
    )
    assert outputs(text) == {"b": ["3", "6"], "whole": ["List (3, 6)"]}


def test_a_list_with_elements_of_another_type_fails() -> None:
    text = net(
        place("a", tokens=("3",))
        + place("b")
        + """
        <transition name="split">
          <defun>
            <in name="x" type="int"/><out name="all" type="list"/>
            <expression>${all} := List (${x}, 2L)</expression>
          </defun>
          <connect-in port="x" place="a"/><connect-out-many port="all" place="b"/>
        </transition>""",
        OUT,
    )
    with pytest.raises(
        ValueError, match=r"'split'.*element 2 of the list is of type long, and int is needed"
    ):
        outputs(text)


def test_the_number_of_tokens() -> None:
    text = net(
        place("a", tokens=("1", "2"))
        + place("b")
        + place("go", "control", ("[]",))
        + place("n", "unsigned long")
        + step()
        + """
        <transition name="none_left">
          <defun>
            <in name="k" type="unsigned long"/><in name="go" type="control"/>
            <out name="n" type="unsigned long"/>
            <expression>${n} := ${k} + 5UL</expression>
          </defun>
          <connect-number-of-tokens port="k" place="a"/><connect-in port="go" place="go"/>
          <connect-out port="n" place="n"/>
          <condition>${k} :eq: 0UL</condition>
        </transition>""",
        OUT + '<out name="n" type="unsigned long" place="n"/>',
    )
    assert outputs(text) == {"b": ["2", "3"], "n": ["5UL"]}


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("int", ["0", "1", "2"]),
        ("unsigned long", ["0UL", "1UL", "2UL"]),
        ("bigint", ["0A", "1A", "2A"]),
        ("char", ["'a'", "'b'", "'c'"]),
        ("string", ['"a"', '"b"', '"c"']),
    ],
)
def test_a_generator(kind: str, made: list[str]) -> None:
    text = net(
        place("a", tokens=("7", "8", "9"))
        + place("ids", kind, attributes='generator="true"')
        + place("b", kind)
        + f"""
        <transition name="number">
          <defun>
            <in name="x" type="int"/><in name="id" type="{kind}"/><out name="y" type="{kind}"/>
            <expression>${{y}} := ${{id}}</expression>
          </defun>
          <connect-in port="x" place="a"/><connect-in port="id" place="ids"/><connect-out port="y" place="b"/>
        </transition>""",
        f'<out name="b" type="{kind}" place="b"/>',
    )
    assert outputs(text) == {"b": made}


ASKED = """
<struct name="question"><field name="value" type="int"/><field name="response_id" type="string"/></struct>
<place name="questions" type="question" put_token="true"/>
<transition name="double">
  <defun>
    <in name="q" type="question"/><out name="answer" type="int"/><out name="y" type="int"/>
    <expression>${answer} := 2 * ${q.value}; ${y} := ${q.value}</expression>
  </defun>
  <connect-in port="q" place="questions"/><connect-response port="answer" to="q"/>
  <connect-out port="y" place="b"/>
</transition>
"""


def test_a_response_goes_to_who_has_asked() -> None:
    waits = '<properties name="drts"><property key="wait_for_output" value="true"/></properties>'
    foreign = read(net(ASKED + place("b"), waits + OUT))
    engine = WorkflowEngine(foreign.net, foreign.workflow().values, dumps=pickle.dumps, loads=pickle.loads)
    assert engine.next() is None
    assert engine.ports.waits
    with pytest.raises(SettingError, match="there is no input port 'question'; the input"):
        foreign.parse_value("question", "21")
    with pytest.raises(SettingError, match=r"of type struct \{value: int\}, and struct question is needed"):
        foreign.parse_value("questions", "Struct [value := 21]")
    asked = foreign.parse_value("questions", "21")
    assert foreign.show_value("questions", asked) == 'Struct [value := 21, response_id := ""]'
    answers: list[Any] = []
    engine.put("questions", [asked], Asker(answers.append))
    assert engine.next() is None
    assert not engine.ports.waits  # each output port has a token
    assert engine.outputs() == {"b": [21]}
    (answer,) = answers
    assert foreign.show_value("questions", engine.value_of(answer)) == "42"


SHARING = """
<place name="files" type="shared_cleanup"/><place name="cleanup" type="string" shared_sink="true"/>
<place name="removed" type="string"/>
<transition name="create">
  <defun>
    <in name="x" type="int"/><out name="file" type="shared_cleanup"/><out name="again" type="list"/>
    <expression>
      ${file} := shared_cleanup ("file.txt"); ${again} := List (${file}, ${file})
    </expression>
  </defun>
  <connect-in port="x" place="a"/><connect-out port="file" place="files"/>
  <connect-out-many port="again" place="files"/>
</transition>
<transition name="use">
  <defun>
    <in name="f" type="shared_cleanup"/><out name="y" type="int"/><expression>${y} := 1</expression>
  </defun>
  <connect-in port="f" place="files"/><connect-out port="y" place="b"/>
</transition>
<transition name="remove">
  <defun>
    <in name="f" type="string"/><in name="n" type="unsigned long"/><out name="f2" type="string"/>
    <expression>${f2} := ${f}</expression>
  </defun>
  <condition>${n} :eq: 0UL</condition>
  <connect-in port="f" place="cleanup"/><connect-out port="f2" place="removed"/>
  <connect-number-of-tokens port="n" place="files"/>
</transition>
"""


def test_a_shared_value_comes_to_its_place_when_no_token_has_it() -> None:
    ports = OUT + '<out name="removed" type="string" place="removed"/>'
    text = net(place("a", tokens=("1",)) + place("b") + SHARING, ports)
    assert outputs(text) == {"b": ["1", "1", "1"], "removed": ['"file.txt"']}


def test_a_task_holds_what_is_shared() -> None:
    foreign = read(net(place("a", tokens=("1",)) + place("b") + SHARING, OUT))
    use = foreign.net.transitions["use"]
    foreign.net.transitions["use"] = msgspec.structs.replace(
        use, is_inline=False, is_direct=False, outputs=(("y", False),)
    )
    engine = WorkflowEngine(foreign.net, dumps=pickle.dumps, loads=pickle.loads)
    tasks = [engine.next() for _ in range(3)]
    assert engine.next() is None
    engine = WorkflowEngine.load(foreign.net, engine.dump(), dumps=pickle.dumps, loads=pickle.loads)
    assert [engine.next() for _ in tasks] == tasks
    for task_id in tasks:
        assert task_id is not None
        assert not engine.running.places["removed"].tokens
        engine.extract(task_id)
        engine.inject(task_id, ((pickle.dumps(1),),))
        assert engine.next() is None
    assert len(engine.running.places["removed"]) == 1


def test_a_subnet_is_unfolded() -> None:
    text = net(place("a", tokens=("1", "2")) + place("b") + subnet(), OUT)
    assert outputs(text) == {"b": ["2", "3"]}
    assert list(read(text).net.transitions) == ["sub (in)", "sub (out)", "sub.inc"]


def test_a_virtual_place_is_the_real_one() -> None:
    counted = """<place name="log" type="int" virtual="true"/>
    <transition name="log">
      <defun>
        <inout name="n" type="int"/><in name="y" type="int"/><out name="z" type="int"/>
        <expression>${n} := ${n} + 1; ${z} := ${y} * 10</expression>
      </defun>
      <connect-inout port="n" place="log"/><connect-in port="y" place="y"/><connect-out port="z" place="y2"/>
    </transition><place name="y2" type="int"/>"""
    sub = subnet("", '<place-map virtual="log" real="total"/>', counted)
    sub = sub.replace('name="y" type="int" place="y"', 'name="y" type="int" place="y2"')
    text = net(
        place("a", tokens=("1", "2")) + place("b") + place("total", tokens=("0",)) + sub,
        OUT + '<out name="total" type="int" place="total"/>',
    )
    assert outputs(text) == {"b": ["20", "30"], "total": ["2"]}


TEMPLATE = """
<template name="twice">
  <template-parameter type="T"/>
  <defun>
    <struct name="pair"><field name="first" type="T"/><field name="second" type="T"/></struct>
    <in name="x" type="T"/><out name="p" type="pair"/>
    <expression>${p.first} := ${x}; ${p.second} := ${x} + ${x}</expression>
  </defun>
</template>
"""
SPECIALIZED = """
<specialize name="twice_int" use="twice">
  <type-map replace="T" with="int"/><type-get name="pair"/>
</specialize>
<transition name="twice">
  <use name="twice_int"/>
  <connect-in port="x" place="a"/><connect-out port="p" place="p"/>
</transition>
<place name="p" type="pair"/>
"""
PAIR_STRUCT = '<struct name="pair"><field name="first" type="int"/><field name="second" type="int"/></struct>'
PAIR = PAIR_STRUCT + '<out name="p" type="pair" place="p"/>'


def test_a_template() -> None:
    text = net(place("a", tokens=("2",)) + TEMPLATE + SPECIALIZED, PAIR)
    assert outputs(text) == {"p": ["Struct [first := 2, second := 4]"]}


def test_files_that_are_included() -> None:
    files = {
        "twice.xpnet": TEMPLATE,
        "structs.xpnet": f"<structs>{PAIR_STRUCT}</structs>",
        "props.xpnet": '<props><properties name="a"><property key="b" value="c"/></properties></props>',
    }
    ports = PAIR.replace(
        PAIR_STRUCT, '<include-structs href="structs.xpnet"/><include-properties href="props.xpnet"/>'
    )
    body = place("a", tokens=("2",)) + '<include-template href="twice.xpnet"/>' + SPECIALIZED
    assert outputs(net(body, ports), files=files) == {"p": ["Struct [first := 2, second := 4]"]}
    function = """<transition name="f"><include-function href="f.xpnet"/>
    <connect-in port="x" place="a"/><connect-out port="y" place="b"/></transition>"""
    text = net(place("a", tokens=("2",)) + place("b") + function, OUT)
    assert outputs(text, files={"f.xpnet": INNER.format(more="")}) == {"b": ["3"]}
    assert problems(text) == [
        "1:185: there is no file 'f.xpnet' beside the workflow, nor in any folder given with -I"
    ]


WRONG = {
    "an unknown element": ("<plase/>", ["<plase> cannot be in <net> (did you mean 'place'?)"]),
    "an unknown attribute": (
        place("a", attributes='vrtual="true"'),
        ["<place> has no attribute 'vrtual' (did"],
    ),
    "a missing attribute": ('<place name="a"/>', ["<place> needs the attribute 'type'"]),
    "a bad flag": (place("a", attributes='virtual="yes"'), ["virtual is true or false, not 'yes'"]),
    "an unknown type": (place("a", "strin"), ["there is no type 'strin' (did you mean 'string'?)"]),
    "a port of an unknown type": (
        place("a") + place("b") + step().replace('<in name="x" type="int"/>', '<in name="x" type="strin"/>'),
        ["there is no type 'strin' (did you mean 'string'?)"],
    ),
    "two places": (place("a") + place("a"), ["there are two places named 'a'; the other is in line 1"]),
    "a token of another type": (place("a", tokens=("1L",)), ["this is of type long, and int is needed"]),
    "an unknown place": (place("b") + step(), ["the net has no place 'a'"]),
    "places of another type": (
        place("a", "long") + place("b") + step(),
        ["the port 'x' and the place 'a' have different types: int instead of long"],
    ),
    "an unknown port": (
        place("a") + place("b") + step(more='<connect-in port="z" place="a"/>'),
        ["transition 'step' has no port 'z'; there are: x, y"],
    ),
    "a port that has a value": (
        place("a") + place("b") + step(more='<connect-read port="x" place="b"/>'),
        ["the port 'x' gets a value already, in line 7"],
    ),
    "a port of another direction": (
        place("a") + place("b") + step(more='<connect-in port="y" place="a"/>'),
        ["<connect-in> does not fit the port 'y', which is <out> (line 4)"],
    ),
    "an expression of other types": (
        place("a") + place("b") + step("${x} + 1L"),
        ["long"],
    ),
    "a condition that is none": (
        place("a") + place("b") + step(more="<condition>${x}</condition>"),
        ["a condition is true or false: this is of type int"],
    ),
    "a transition that only reads": (
        place("a") + place("b") + step().replace("connect-in", "connect-read"),
        ["transition 'step' only looks at tokens and takes none, so it would fire for ever"],
    ),
    "a generator that gets tokens": (
        place("a", attributes='generator="true"') + place("b", attributes='generator="true"') + step(),
        ["'b' is a generator: only <connect-in> takes from it"],
    ),
    "a virtual place without a real one": (
        place("a")
        + place("b")
        + subnet("", "", '<place name="v" type="int" virtual="true"/>')
        + subnet("").replace('"sub"', '"other"'),
        ["the virtual place 'v' needs a <place-map> where the net is used"],
    ),
    "a place-map with a priority": (
        place("a")
        + place("b")
        + subnet(
            'priority="1"', '<place-map virtual="v" real="a"/>', '<place name="v" type="int" virtual="true"/>'
        ),
        ["a <place-map> needs a net that is unfolded, and a priority forbids that: remove one"],
    ),
    "an unknown template": (
        '<specialize name="s" use="tmpl"/>' + TEMPLATE,
        ["there is no template 'tmpl'; there are: twice"],
    ),
    "a template without its types": (
        '<specialize name="s" use="twice"/>' + TEMPLATE,
        ["the template 'twice' needs a <type-map> for: T"],
    ),
    "a shared type without its place": (
        place("a", "shared_gone"),
        ["the type shared_gone needs a place 'gone' with shared_sink=\"true\" in this net"],
    ),
    "a struct in itself": (
        '<struct name="s"><field name="f" type="s"/></struct>' + place("a", "s"),
        ["a struct cannot have itself as a field: s has a field of s"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    body, wanted = WRONG[name]
    found = problems(net(body))
    assert len(found) == len(wanted), found
    assert all(part in line for part, line in zip(wanted, found, strict=True)), found


def test_all_problems_are_said_at_once() -> None:
    body = place("a", "itn") + place("b", attributes='vrtual="1"') + step("${z}", "<condition>1</condition>")
    assert len(problems(net(body, OUT))) == 4


def test_a_workflow_that_is_no_net() -> None:
    text = """<defun name="add">
    <in name="a" type="int"/><in name="b" type="int"/><out name="sum" type="int"/>
    <expression>${sum} := ${a} + ${b}</expression></defun>"""
    assert outputs(text, "a=1", "b=2", "a=3", "b=4") == {"sum": ["3", "7"]}


def test_files_that_include_each_other() -> None:
    text = '<defun><net><transition name="t"><include-function href="a.xpnet"/></transition></net></defun>'
    found = problems(text, {"a.xpnet": text})
    assert ["files include each other without end: a.xpnet includes a.xpnet" in line for line in found] == [
        True
    ]


def test_a_template_of_itself() -> None:
    inner = '<defun><net><specialize name="s" use="t"/></net></defun>'
    body = f'<template name="t">{inner}</template><specialize name="s" use="t"/>'
    assert "do some of them contain themselves?" in problems(net(body))[0]


def test_notes_say_what_never_fires() -> None:
    body = place("a") + place("b") + step().replace('<connect-in port="x" place="a"/>', "")
    notes = [note.message for note in read(net(body, OUT)).notes]
    assert notes == ["transition 'step' never fires: its port 'x' is not connected"]


@pytest.mark.parametrize(("file", "settings", "wanted"), [("count.xpnet", ["n=0L"], {"result": ["1000L"]})])
def test_examples(file: str, settings: list[str], wanted: dict[str, list[str]]) -> None:
    assert outputs((EXAMPLES / file).read_text(), *settings) == wanted


def test_tasks_of_a_search_belong_to_a_group() -> None:
    found = read((EXAMPLES / "search.xpnet").read_text()).net.transitions
    assert found["search"].group is not None
    assert not found["search"].is_inline
    assert found["end"].outputs[found["end"].ends_groups] == ("groups", False)


def test_a_file_that_is_changed_somewhere_is_read_or_refused() -> None:
    texts = [path.read_text() for path in EXAMPLES.glob("*.xpnet")]
    texts += [net(place("a") + place("b") + subnet() + TEMPLATE + SPECIALIZED + ASKED + SHARING, PAIR)]
    pieces = re.compile(r"[\w${}:=.]+|<[^>]*>")
    choices = random.Random(18)
    refused = 0
    for _ in range(200):
        text = choices.choice(texts)
        for _ in range(choices.randrange(1, 4)):
            places = list(pieces.finditer(text))
            here, other = choices.choice(places), choices.choice(places)
            text = text[: here.start()] + choices.choice(["", other[0], here[0] * 2]) + text[here.end() :]
        try:
            read(text).net.check()
        except FormatError:
            refused += 1
    assert refused > 50
