"""Runs that are resumed whose settings have credentials."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gspc_trio.cli.common import UsageError
from gspc_trio.cli.journaled import RunOptions, new_journal, old_journal
from gspc_trio.components.job.shell.workflow_file import load_workflow_file

FLOW = """
from gspc_trio import Workflow, farm

def double(item):
    return 2 * item

def workflow(password: str, n: int = 1):
    return Workflow(farm(double), {"items": [password] * n})
"""
SECRET = "password=hush1234567"


@pytest.fixture
async def journal(tmp_path: Path) -> Path:
    """Return the directory of the journal of a run that was interrupted."""
    file, folder = tmp_path / "flow_with_password.py", tmp_path / "j"
    sys.modules.pop(file.stem, None)
    file.write_text(FLOW)
    settings = [SECRET, "n=2"]
    loaded = load_workflow_file(file, settings)
    with new_journal(folder, file, settings, loaded, RunOptions("flow")) as kept:
        assert kept is not None
        await kept.recover(loaded.workflow.net, loaded.workflow.values)
    del sys.modules[file.stem]  # it is loaded by another process
    return folder


def contents(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.iterdir()]


@pytest.mark.parametrize(
    ("given", "changed", "words"),
    [
        ([], False, r"again, as they were: --set password=\*\*\*$"),
        (["password=another12345"], False, r"again, as they were: --set password=\*\*\*$"),
        ([SECRET, "n=3"], False, "--set goes with --changed"),
        (["n=3"], True, r"again, as they were: --set password=\*\*\*$"),
    ],
)
async def test_credentials_are_wanted_again(
    journal: Path, given: list[str], changed: bool, words: str
) -> None:
    with pytest.raises(UsageError, match=words), old_journal(journal, given, changed=changed):
        pass


@pytest.mark.parametrize(
    ("given", "changed", "items"),
    [
        ([SECRET], False, ["hush1234567"] * 2),
        ([SECRET, "n=2"], False, ["hush1234567"] * 2),
        ([SECRET, "n=3"], True, ["hush1234567"] * 3),
        (["password=another12345"], True, ["another12345"] * 2),
    ],
)
async def test_a_run_goes_on_with_credentials_that_are_given_again(
    journal: Path, given: list[str], changed: bool, items: list[str]
) -> None:
    with old_journal(journal, given, changed=changed) as (kept, loaded):
        assert loaded.workflow.values == {"items": tuple(items)}
        engine = await kept.recover(loaded.workflow.net, loaded.workflow.values)
        assert repr(engine.snapshot()).count(items[0]) == len(items)
    assert not any(items[0].encode() in data for data in contents(journal))
