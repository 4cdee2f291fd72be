"""Task files in TOML."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.workflow.formats.format import FormatError, Function, Source, recognise
from gspc_trio.workflow.formats.task_file.read import TaskFileWorkflow, read_tasks
from tests.workflow.support import Driver, engine_for

FILE = """name = "two"
[[task]]
id = "make"
code = "steps.py:double"
arguments = [4]

[[task]]
id = "use"
code = "steps.py:double"
dependencies = ["make"]
threads = 2
attempts = 3
output = {source = "iml:result", location = ["n1"], policy = "replicated:2"}
"""


def double(value: int) -> int:
    return 2 * value


def functions(name: str) -> Mapping[str, Function]:
    if name != "steps.py":
        raise ValueError(f"there is no file {name}")
    return {"double": double}


def read(text: str | bytes) -> TaskFileWorkflow:
    data = text.encode() if isinstance(text, str) else text
    return read_tasks(Source("t.toml", data, functions=functions))


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(FormatError) as error:
        read(text)
    return str(error.value).splitlines()


def test_a_task_file_is_recognised_by_its_tasks() -> None:
    found = recognise(".toml", FILE.encode())
    assert found is not None
    assert found.name == "tasks"


def test_tasks_are_read_with_all_that_they_say() -> None:
    workflow = read(
        FILE.replace('output = {source = "iml:result"', 'output = {source = ""').replace(':2"}', ':1"}')
    )
    assert workflow.net.name == "two"
    assert Driver(engine_for(workflow.net)).run().engine.outputs() == {"use": [16]}
    described = read(FILE).net.transitions["use"]
    assert described.options.attempts == 3
    assert len(described.shape.requirements) == 2
    assert described.shape.requirements[0].preferences == ("n1.node",)


def test_all_that_is_wrong_is_said_with_its_place() -> None:
    text = """nam = 1
[[task]]
id = "a"
code = "steps.py:doubel"
[[task]]
id = "a"
program = "x"
[[task]]
input = 3
code="elsewhere.py:x"
[[task]]
id = "d"
code = "steps.py:double"
threads = 0
[[task]]
id = "e"
  dependencies = "a"
location = "n1"
"""
    assert problems(text) == [
        "t.toml: there is no 'nam'; there are: name, task (did you mean 'name'?)",
        "t.toml:4:1: steps.py has no function 'doubel'; it has: double (did you mean 'double'?)",
        "t.toml:6:1: two tasks have the id 'a'",
        "t.toml:7:1: the arguments of a program are a list of words, not one string: 'x'; for a shell line "
        "say ['sh', '-c', line]",
        "t.toml:8:1: id is missing",
        "t.toml:9:1: input is a URI, or has source, location and policy; it is 3",
        "t.toml:10:1: there is no file elsewhere.py",
        "t.toml:11:1: task 'd': threads must be at least 1, not 0",
        't.toml:16:1: a task has either code = "FILE.py:NAME" or program = ["PROGRAM", ...]',
        "t.toml:17:3: dependencies is a list of ids, not 'a'",
        "t.toml:18:1: there is no 'location'; there are: id, code, program, input, output, arguments, "
        "threads, dependencies, attempts, loss_attempts, timeout_s, may_rerun, memory_bytes, estimate_s, "
        "cache",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.toml: there are no tasks: begin each one with [[task]]"),
        ("[[task]\n", "t.toml:1:7: this is no TOML: Expected ']]' at the end of an array declaration"),
        ("task = []", "t.toml: there are no tasks: begin each one with [[task]]"),
        (
            "#\ntask = 3",
            "t.toml:2: task is 3: begin each task with [[task]], in double brackets, and keys below",
        ),
        ("[task]", "t.toml:1: task is one table: begin it with [[task]], in double brackets, and keys below"),
        (b"#\n# \xff", "t.toml:2:3: this is no text in UTF-8: there is the byte 0xff"),
        ('[[task]]\nid="a"\nprogram=3\n', "t.toml:3:1: program is a list of words, not 3"),
        ("task = [3]", "t.toml: a task is written [[task]], with keys below"),
        (
            '[[task]]\nid="a"\ncode="steps.py:double"\ndependencies=["a"]\n',
            "t.toml:2:1: tasks wait for each other in a circle: 'a' waits for 'a'",
        ),
        ("a = " + "[" * 100_000, "t.toml: this is no TOML: lists or tables are nested too deep"),
        ("a = " + "1" * 100_000, "t.toml: there is a name or a number of more than 1,000 characters"),
        ("a" + "." * 20 + "b", "t.toml:1:3: this is no TOML: Invalid initial character for a key part"),
        ("a." * 100_000 + "a = 1", "t.toml: there is a key of more than 20 parts"),
        ('"a"' + " . 'a'" * 20 + " = 1", "t.toml: there is a key of more than 20 parts"),
        (
            '[[task]]\nid = "a"\n' + "".join(f"key{number} = 1\n" for number in range(10_000)),
            "t.toml: there are 10,002 keys and tables; the 1 tasks have at most 15 each",
        ),
        (
            f"[[task]]\nid = 3\ncode = 'steps.py:double'\narguments = {'{a=' * 100}1{'}' * 100}\n",
            "t.toml:2:1: id is a text, not 3\n"
            "t.toml:4:1: arguments is a list, not {'a': {'a': {'a': {'a': {'a': {'a': {...}}}}}}}",
        ),
    ],
)
def test_what_is_no_task_file_is_one_line(text: str | bytes, said: str) -> None:
    assert problems(text) == said.splitlines()


def test_what_is_in_quotes_may_be_long() -> None:
    numbers = ",\n".join(["[1]"] * 300)
    dots = "a." * 100_000
    texts = f"""["{dots}\\"{dots}", '{dots}', {dots!r}]  # {dots}\n"""
    block = "x = 1\n" * 1_000
    lists = f"arguments = [[\n{numbers}\n], {texts}, {chr(34) * 3}{block}{chr(34) * 3}]\n"
    read(f"[[task]]\nid = 'a'\ncode = 'steps.py:double'\n{lists}")
    tasks = "".join(f"[[task]]\nid = 'a{number}'\nprogram = ['x']\n" for number in range(300))
    assert len(read(tasks).net.transitions) == 300


def test_what_is_wrong_ten_thousand_times_is_looked_for_a_thousand_times() -> None:
    lines = problems("[[task]]\nid='a'\nx=1\n" * 10_000)
    assert lines[-1] == "t.toml: and at least 950 more"
    assert lines[:2] == [
        't.toml:2:1: a task has either code = "FILE.py:NAME" or program = ["PROGRAM", ...]',
        "t.toml:3:1: there is no 'x'; there are: id, code, program, input, output, arguments, "
        "threads, dependencies, attempts, loss_attempts, timeout_s, may_rerun, memory_bytes, estimate_s, "
        "cache",
    ]


@given(st.data())
@settings(max_examples=60)
def test_nothing_but_its_own_error_leaves_the_reader(data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(FILE)))
    piece = data.draw(
        st.sampled_from(['"', "[[task]]", "=", "\n", "[", "1979-05-27", "{", "'''", "\\", "\0", "é"])
    )
    for text in (FILE[:cut], FILE[:cut] + piece + FILE[cut:], FILE[:cut] + piece + FILE[cut + 1 :]):
        try:
            read(text)
        except FormatError as error:
            said = str(error)
            assert said.startswith("t.toml")
    with pytest.raises(FormatError):
        read(b"\xff" + FILE.encode())
