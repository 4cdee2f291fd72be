from __future__ import annotations

import json
from pathlib import Path

import pytest

from gspc_trio.cli.foreign import check

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
