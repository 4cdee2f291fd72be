"""Options of a run: what a job gets of them, also when the run is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio.cli.arguments import OwnSystem
from gspc_trio.cli.common import CommandError, UsageError
from gspc_trio.cli.jobserver import _job_settings, _options, _running
from gspc_trio.cli.journaled import RunOptions, changed_settings, new_journal
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.components.job.shell.workflow_file import load_workflow_file
from gspc_trio.protocol.plain import from_plain

FLOW = """
from gspc_trio import Workflow, farm


def workflow():
    return Workflow(farm(str), {"items": []})
"""
OPTIONS = RunOptions("flow", True, False, 2.0, 3, large_bytes_min=1 << 20, assign="queues")


def test_a_resumed_run_has_the_options_of_the_first(tmp_path: Path) -> None:
    flow, journal = tmp_path / "flow_with_options.py", tmp_path / "journal"
    flow.write_text(FLOW)
    loaded = load_workflow_file(flow, [])
    with new_journal(journal, flow, [], loaded, OPTIONS) as kept:
        assert kept is not None
        assert kept.about.options == {
            "name": "flow",
            "keep_going": True,
            "threads": False,
            "weight": 2.0,
            "priority": 3,
            "policy": "default",
            "large_bytes_min": 1 << 20,
            "assign": "queues",
            "placement": "",
            "plan": "",
            "tightness": 0.0,
        }
    assert from_plain(kept.about.options, RunOptions) == OPTIONS
    assert _job_settings(OPTIONS, loaded, None, None) == JobSettings(
        "flow",
        keep_going=True,
        weight=2.0,
        priority=3,
        large_bytes_min=1 << 20,
        modules=loaded.modules,
        assign="queues",
    )
    planned = RunOptions("flow", plan="move", tightness=2.0)
    assert _job_settings(planned, loaded, None, None).tightness == 2.0


def test_several_settings_of_one_name_stay_when_a_run_is_resumed() -> None:
    before = ["a=1", "b=1", "a=2"]
    assert changed_settings(before, []) == before
    assert changed_settings(before, ["a=3", "c=1", "a=4"]) == ["b=1", "a=3", "c=1", "a=4"]


def test_what_is_to_be_said_of_missing_packages_is_left_to_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setattr("gspc_trio.components.job.shell.settings.find_spec", lambda _: None)
    flow = tmp_path / "flow_with_spans.py"
    flow.write_text(FLOW)
    loaded = load_workflow_file(flow, [])
    assert _job_settings(OPTIONS, loaded, None, None).otel is None
    assert not caplog.records, "the job would say it again"
    with pytest.raises(UsageError, match="--otel needs the package"):
        _job_settings(OPTIONS, loaded, None, None, otel=True)


def test_options_of_a_system_of_its_own_are_refused_with_a_running_one(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    own = OwnSystem(2, None, [str(other)])
    assert _running(None, own) is None
    assert _options(own) == {"allow_files": (str(other),)}
    assert _options(OwnSystem()) == {}
    given = {
        "--cores": OwnSystem(2),
        "--sites": OwnSystem(sites="x.toml"),
        "--allow-files": OwnSystem(0, None, ["."]),
    }
    for name, refused in given.items():
        with pytest.raises(UsageError, match=f"{name} cannot be used with --rts"):
            _running(tmp_path / "rts.json", refused)
    with pytest.raises(CommandError, match="--allow-files /nonexistent: there is no such directory"):
        _options(OwnSystem(allow_files=["/nonexistent"]))
