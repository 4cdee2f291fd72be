from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio.cli.common import CommandError, UsageError
from gspc_trio.cli.pictures import convert, draw
from tests.cli.test_check import NET, SOURCE

FLOW = """from gspc_trio import Workflow, farm


def workflow():
    return Workflow(farm(abs), {"items": [1]})
"""


def test_a_net_goes_to_python_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, flow, again = tmp_path / "net.pnml", tmp_path / "flow_of_pnml.py", tmp_path / "again.pnml"
    net.write_text(NET)
    convert(net, flow)
    assert "net.place('p', [None], output=True, may_keep=True)" in flow.read_text()
    convert(flow, again)
    convert(net, net.with_suffix(".PNML"))
    assert "<initialMarking><text>1</text></initialMarking>" in again.read_text()
    assert capsys.readouterr() == ("", "")


def test_what_is_lost_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow, net = tmp_path / "flow_to_pnml.py", tmp_path / "net.pnml"
    flow.write_text(FLOW)
    with pytest.raises(CommandError, match=f"{net} cannot say this of {flow}; --lossy writes it"):
        convert(flow, net)
    assert not net.exists()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{flow}: place 'items': the values of its tokens"
    convert(flow, net, lossy=True)
    assert '<place id="items">' in net.read_text()
    assert capsys.readouterr().err.splitlines() == lines


def test_a_wrong_suffix_is_told(tmp_path: Path) -> None:
    net = tmp_path / "net.pnml"
    net.write_text(NET)
    with pytest.raises(UsageError, match=r"its suffix is that of no format; there are: \.py, \.pnml"):
        convert(net, tmp_path / "net.txt")
    with pytest.raises(UsageError, match="is the workflow file itself"):
        convert(net, net)
    with pytest.raises(UsageError, match=r"a picture ends with \.dot, \.mmd or \.svg"):
        draw(net, tmp_path / "net.png")


def test_a_net_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = tmp_path / "net.pnml"
    net.write_text(NET)
    draw(net, settings=["p=2"])
    assert 'p0 [label="p\\n●●●"];' in capsys.readouterr().out
    for suffix, beginning in ((".mmd", "flowchart LR"), (".dot", "digraph"), (".svg", "<")):
        draw(net, net.with_suffix(suffix))
        assert net.with_suffix(suffix).read_text().startswith(beginning)


def test_graphviz_that_fails_or_takes_too_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, dot = tmp_path / "net.pnml", tmp_path / "dot"
    net.write_text(NET)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for script, said in (
        ("exec sleep 60", "dot takes more than 0.05 s for 2 "),
        ("echo no >&2; false", "it: no$"),
    ):
        dot.write_text(f"#!/bin/sh\n{script}\n")
        dot.chmod(0o755)
        monkeypatch.setattr("gspc_trio.cli.pictures.DOT_S", 0.05 if "sleep" in script else 60)
        with pytest.raises(CommandError, match=said):
            draw(net, net.with_suffix(".svg"))


def test_a_net_that_never_ends_is_drawn_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net, flow = tmp_path / "net.pnml", tmp_path / "flow_for_ever.py"
    net.write_text(SOURCE)
    draw(net)
    assert "(firings)" not in capsys.readouterr().out
    convert(net, flow)
    assert "forward('_(firings)', '(firings)')" in flow.read_text()
