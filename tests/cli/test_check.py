from __future__ import annotations

import json
from pathlib import Path

import pytest

from gspc_trio.cli.common import UsageError
from gspc_trio.cli.foreign import ReadingOptions, check

pytestmark = pytest.mark.trio

NET = """<pnml><net id="n"><place id="p"><initialMarking><text>1</text></initialMarking></place>
<transition id="t"/><arc id="a" source="p" target="t"/></net></pnml>
"""


async def test_a_file_that_is_all_right(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.pnml"
    path.write_text(NET)
    assert await check(path) == 0
    assert capfd.readouterr() == (f"{path}: a net with 1 place and 1 transition\n", "")


async def test_what_is_wrong_with_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.pnml"
    path.write_text(NET.replace('target="t"', 'target="tt" type="inhibitor"'))
    messages = [
        "arc 'a': inhibitor arcs are refused: only normal arcs are read",
        "arc 'a': there is no place or transition 'tt'",
    ]
    assert await check(path) == 1
    assert capfd.readouterr() == ("", "".join(f"{path}:2:21: {message}\n" for message in messages))
    assert await check(path, json=True) == 1
    told = json.loads(capfd.readouterr().out)
    assert [problem["message"] for problem in told["problems"]] == messages


async def test_ports_that_want_values_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, net = tmp_path / "pattern_to_be_checked.py", tmp_path / "net.xpnet"
    path.write_text("from gspc_trio import farm\n\n\ndef workflow():\n    return farm(abs)\n")
    net.write_text(
        '<defun name="f"><in name="n" type="int"/><in name="m" type="int"/><out name="r" type="int"/>'
        "<expression>${r} := ${n} + ${m}</expression></defun>"
    )
    assert await check(path, json=True) == 0
    assert json.loads(capfd.readouterr().out)["wanting"] == ["items"]
    assert await check(net) == 0
    wants = f"{net}: the input ports 'n', 'm' want values before it runs: say --set PORT=VALUE\n"
    assert capfd.readouterr().out == f"{net}: a net with 3 places and 1 transition\n{wants}"
    wants = "--states: the input port 'items' wants values before it runs: return Workflow"
    with pytest.raises(UsageError, match=wants):
        await check(path, states=3)


async def test_a_file_with_zeros_is_told_with_its_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "zeros_to_be_checked.py"
    path.write_text("x = 1\n\0\n")
    assert await check(path) == 1
    assert ", line 2: SyntaxError: source code string" in capfd.readouterr().err


SOURCE = """<pnml><net id="n"><place id="p"/><transition id="t"/><transition id="u"/>
<arc id="a" source="t" target="p"/><arc id="b" source="p" target="u"/></net></pnml>
"""


async def test_states_of_a_net_that_goes_on_for_ever(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.pnml"
    path.write_text(SOURCE)
    assert await check(path) == 1
    assert "give --firings N" in capfd.readouterr().err
    assert await check(path, states=3) == 0
    lines = ["markings: 3 (there may be more)", "edges: 5", "most tokens: 2 altogether, 2 on 'p'"]
    net = f"{path}: a net with 1 place and 2 transitions"
    assert capfd.readouterr().out.splitlines() == [net, *lines, "deadlocks: 0"]
    assert await check(path, states=3, reading=ReadingOptions(firings=1), json=True) == 0
    assert json.loads(capfd.readouterr().out)["states"] == {
        "markings": 2,
        "edges": 1,
        "complete": True,
        "most_on_place": {"p": 1},
        "most_tokens": 1,
        "deadlocks": 1,
        "deadlock_examples": [{"p": 1}],
        "never": ["u"],
        "failures": [],
    }


async def test_states_are_for_nets_without_tasks(tmp_path: Path) -> None:
    net, tasks = tmp_path / "net.pnml", tmp_path / "tasks_of_check.py"
    net.write_text(NET)
    tasks.write_text("def t():\n    pass\n")
    with pytest.raises(UsageError, match="--states: transition 't' runs tasks"):
        await check(net, states=3, reading=ReadingOptions(tasks=tasks))


async def test_what_is_wrong_with_a_python_file_is_a_problem_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "flow_to_be_checked.py"
    path.write_text("def workflow():\n    return 3\n")
    assert await check(path, json=True) == 1
    (problem,) = json.loads(capfd.readouterr().out)["problems"]
    assert problem["message"] == "workflow() returned 3; a Net or a Workflow is wanted"


async def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.pnml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    assert await check(path) == 1
    message = "it has 100,000,000 bytes; workflow files of at most 67,108,864 are read"
    assert capfd.readouterr().err == f"{path}: {message}\n"
