"""The study of the examples, as its file says, from the launcher to the estimate."""

from __future__ import annotations

import os
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
