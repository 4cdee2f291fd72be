"""``gspc-launcher``: its options are printed, and what cannot be is one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gspc_trio.cli.common import CommandError, run_command
from gspc_trio.cli.launcher import app
from gspc_trio.cli.top import _what_to_serve
from gspc_trio.components.launcher.options import option_table


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run_command(app, list(arguments))
    return int(ended.value.code or 0)


def test_each_option_is_printed_with_its_type_and_its_default(capsys: pytest.CaptureFixture[str]):
    assert run("--print-options") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [row.name for row in option_table()]
    (limit,) = (" ".join(line.split()) for line in lines if line.startswith("job_limit "))
    assert limit.startswith("job_limit whole number 1000 the most jobs at a time")
    assert run("--print-options", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["std_output"]["default"], rows["std_output"]["type"]) == (True, "true or false")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "study.toml: No such file or directory"),
        ('scheduler = "slrum"', "study.toml: scheduler: there is no 'slrum' (did you mean 'slurm'?)"),
        ('scheduler = "local"\njob_limit = 1', "study.toml: job_limit: 1 is too small: it is 2 or more"),
        ('scheduler = "local"', "server_command: there is none"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(
    text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "study.toml"
    if text is not None:
        path.write_text(text)
    before = sorted(tmp_path.iterdir())
    assert run("--config_name", str(path)) == 1
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_study_is_served_to_a_browser_by_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    assert _what_to_serve(None, None, Path("out"), speed=1.0, store=None) == [
        "--study",
        str(tmp_path / "out"),
    ]
    with pytest.raises(CommandError, match="there is no directory none: name the output_dir of a study"):
        _what_to_serve(None, None, Path("none"), speed=1.0, store=None)
