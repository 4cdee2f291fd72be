"""Journals and a state that an earlier commit has written can be resumed; ``stored/README.md`` says which."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from gspc_trio import open_job, open_rts
from gspc_trio.components.job.shell.journal import open_journal
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.components.job.shell.workflow_file import load_workflow_file
from gspc_trio.version import VERSION
from tests.e2e.support import SLEEPERS, World, free_port, wait_until

STORED = Path(__file__).parent / "stored"
RESULTS = [[number, 3, 0.5, f"n{number}"] for number in range(4)]


def private_copy(name: str, folder: Path) -> Path:
    """Return a copy that only this user can look into, as what keeps them demands."""
    copy = folder / name
    shutil.copytree(STORED / name, copy)
    copy.chmod(0o700)
    for path in copy.iterdir():
        path.chmod(0o600)
    return copy


@pytest.mark.parametrize("name", ["over", "interrupted", "resumed_once"])
async def test_a_journal_of_before_is_resumed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had finished does not run again, and the rest does."""
    monkeypatch.setenv("GSPC_STORED_GO", "1")
    with open_journal(private_copy(name, tmp_path)) as journal:
        about = journal.about
        assert (about.version, about.file, about.settings) == (VERSION, "/tmp/example/flow.py", ("n=4",))
        loaded = load_workflow_file(STORED / "flow.py", list(about.settings))
        assert loaded.fingerprint == about.fingerprint
        settings = JobSettings(**about.options, modules=loaded.modules)
        records = tmp_path / "records"
        async with (
            open_rts(cores=1) as rts,
            open_job(
                loaded.workflow.net,
                rts=rts,
                values=loaded.workflow.values,
                settings=settings,
                journal=journal,
                records_path=records,
            ) as job,
        ):
            result = await job.wait()
    assert sorted(result.outputs["results"]) == RESULTS
    assert result.tasks["finished"] == 9
    told = map(json.loads, records.read_text().splitlines())
    begun = {row["name"] for row in told if row["record"] == "TaskChanged" and row["state"] == "running"}
    assert begun == (set() if name == "over" else {"wait", "check"}), "what had finished is not run again"


def test_a_state_of_before_is_taken_over(world: World) -> None:
    state = private_copy("state", world.folder)
    before = json.loads((state / "rts.json").read_text())
    world.start_rts("--state", str(state), "--port", str(free_port()))
    connection = json.loads(Path(world.connection_file).read_text())
    assert connection["token"] == before["token"]

    def all_up() -> list[tuple[str, str, int]]:
        rifs = world.status()["rifs"]
        return sorted((r["host"], r["rif_id"], r["incarnation"]) for r in rifs if r["state"] == "up")

    wait_until(lambda: len(all_up()) == 2, "both hosts have a RIF again")
    assert all_up() == [("anna", "r1", 2), ("berta", "r2", 2)], "theirs had ended meanwhile"
    assert world.status()["jobs"] == [], "so had the job server"
    done = world.run_json("jobserver", "run", world.workflow(SLEEPERS), "--set", "n=2", "--rts",
                          world.connection_file)  # fmt: skip
    assert done["tasks"]["finished"] == 2
    after = json.loads((state / "rts.json").read_text())
    assert after["instance"] == before["instance"]
    assert after["epoch"] > before["epoch"], os.listdir(state)
    assert after["jobs_named"] > before["jobs_named"], "no id is given twice"
    world.stop_rts()
