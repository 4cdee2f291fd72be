"""A launcher that is killed, and the one that goes on for it, with real processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import World, open_world, wait_until

pytestmark = pytest.mark.process

SERVER = """
from gspc_trio import study

with study.connect() as launcher:
    launcher.submit(1, ["sh", "-c", "until [ -e gate ]; do sleep 0.1; done"])
    for change in launcher.changes():
        print(change.client_id, change.state, flush=True)
    launcher.done()
"""

OPTIONS = """
scheduler = "local"
server_command = ["python3", "server.py"]
output_dir = "out"
timer_interval_s = 60
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A place to run commands in, in which nothing of theirs may be left."""
    with open_world(tmp_path) as place:
        yield place


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_another_launcher_goes_on_with_the_study_of_a_killed_one(world: World) -> None:
    """Its client ends while there is no launcher; the server is told that once."""
    (world.folder / "server.py").write_text(SERVER)
    (world.folder / "study.toml").write_text(OPTIONS)
    arguments = ("-c", "study.toml", "--journal", "journal")
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    killed = world.start("launcher", *arguments, env=environment)
    out = world.folder / "out"
    wait_until(lambda: "1 running" in text_of(out / "job.0.server.out"), "the client does not run")
    killed.kill()
    killed.wait()
    (world.folder / "gate").touch()
    wait_until(lambda: text_of(out / "job.1.client.1.status"), "the client does not end")
    done = world.run("launcher", *arguments, env=environment)
    assert done.returncode == 0, done.stderr
    said = text_of(out / "job.0.server.out").splitlines()
    assert said == ["1 submitted", "1 running", "1 completed"]
    assert sorted(path.name for path in out.glob("*.sh")) == ["job.0.server.sh", "job.1.client.1.sh"]
    again = world.run("launcher", *arguments, env=environment)
    assert (again.returncode, "the study in the journal has ended" in again.stderr) == (0, True)
    world.wait_nothing_left()
