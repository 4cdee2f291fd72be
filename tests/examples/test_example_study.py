"""The study of the examples, as its file says, from the launcher to the estimate."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.e2e.support import ROOT, World

pytestmark = pytest.mark.process


def test_a_server_and_twenty_clients_estimate_pi(world: World) -> None:
    (world.folder / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = world.run("launcher", "-c", "examples/study/study.toml", env={"PATH": path})
    assert done.returncode == 0, done.stderr
    (folder,) = world.folder.glob("study-*")
    assert len(list(folder.glob("hits.*"))) == 20
    assert abs(float((folder / "pi.txt").read_text()) - 3.14) < 0.05
    said = (folder / "job.0.server.out").read_text().splitlines()
    assert len([line for line in said if "is completed" in line]) == 20
    assert said[-1].startswith("pi is about 3.1")
    world.wait_nothing_left()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_server_in_shell_and_curl(world: World) -> None:
    (world.folder / "examples").symlink_to(ROOT / "examples")
    done = world.run("launcher", "-c", "examples/study/http.toml")
    assert done.returncode == 0, done.stderr
    (folder,) = world.folder.glob("study-*")
    said = {path.read_text() for path in folder.glob("job.*.client.*.out")}
    assert said >= {f"client {client_id}\n" for client_id in range(8)}
    secrets = [json.loads(path.read_text())["token"] for path in (folder / "secret").glob("server.*.json")]
    others = [path.read_text() for path in folder.glob("*.*")]
    assert secrets
    assert not [text for text in others for secret in secrets if secret in text]
    assert not (folder / "secret" / "http.json").exists(), "nobody answers any more"
    world.wait_nothing_left()
