"""``--model`` and ``gspc-jobserver model forget``: what cannot be used, and what is not known, is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio.cli.common import CommandError, run_command
from gspc_trio.cli.jobserver import app
from gspc_trio.cli.kept import CacheOptions, model_option
from gspc_trio.components.job.scheduler.interface import RunKey
from gspc_trio.components.job.shell.model_file import change_file
from gspc_trio.policies.performance_model import PerformanceModel


def measured(model: PerformanceModel) -> PerformanceModel:
    """Return the model with a run time."""
    model.learn(RunKey("solve", "", "core"), 10, None, 0.5)
    return model


@pytest.mark.parametrize(("name", "why"), [("", "Is a directory"), ("no/times", "No such file or directory")])
def test_a_model_that_cannot_be_used_is_told_in_plain_words(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(CommandError) as refused:
        model_option(CacheOptions(model=tmp_path / name))
    assert str(refused.value) == f"--model: {tmp_path / name}: {why}"


def test_forgetting_what_is_not_known_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "times"
    change_file(path, measured)
    for code, status in (("slove", 1), ("solve", 0), ("solve", 1)):
        with pytest.raises(SystemExit) as ended:
            run_command(app, ["model", "forget", str(path), code])
        assert (ended.value.code or 0) == status
    out, err = capsys.readouterr()
    assert out == "1 run time forgotten\n"
    assert err.splitlines()[0].endswith(f"{path} has no run times of 'slove' (did you mean 'solve'?)")
