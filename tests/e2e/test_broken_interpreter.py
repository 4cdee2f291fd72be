"""A host on which processes start, but die at once: it is not used until they live."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from tests.e2e.support import ROOT, World, completed, wait_until
from tests.e2e.test_short_of_descriptors import marking, quarantined, rifs


def interpreter_of_its_own(folder: Path) -> Path:
    """Make an environment with this one's packages, whose interpreter can be broken; return that."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    site = folder / sysconfig.get_path("purelib", vars={"base": "", "platbase": ""}).lstrip("/")
    site.mkdir(parents=True)
    (site / "paths.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    home = os.path.dirname(os.path.realpath(sys.executable))
    (folder / "pyvenv.cfg").write_text(f"home = {home}\n")
    return python


def test_its_tasks_run_elsewhere_and_lose_nothing_and_it_is_used_when_it_is_mended(world: World) -> None:
    python = interpreter_of_its_own(world.folder / "own")
    start = ("-m", "gspc_trio.cli.rts", "start", "--cores", "1", "--host", "anna")
    system = world.start_program(str(python), *start)
    wait_until(lambda: os.path.exists(world.connection_file), "the run-time system is there")
    marking(world, 2).see_through()  # from now on anna has its template
    done = world.run("rts", "bootstrap", "bert", "--cores", "1")
    assert done.returncode == 0, done.stderr
    broken = python.with_name("broken")
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    real = python.rename(python.with_name("real"))
    broken.rename(python)
    job = marking(world, 60)
    shown = quarantined(world)
    assert shown["host"] == "bert"
    assert "the template of compute processes died when it was started (exit status 3;" in shown["detail"]
    job.see_through()
    real.replace(python)
    wait_until(lambda: rifs(world)["bert"]["state"] == "up", "it is tried again")
    job = marking(world, 60)
    wait_until(lambda: job.hosts_used() == 2, "both are used")
    job.see_through()
    world.stop_rts()
    assert "on bert is quarantined: the template of compute processes died" in completed(system).stderr
