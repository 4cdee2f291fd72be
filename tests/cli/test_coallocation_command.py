"""``gspc-coallocate``: what is wrong is one line, and nothing runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio.core.nested import BARRIER_VARIABLE, BarrierPlace
from tests.commands import run_command

JOBS = '[a]\nexecutable = "true"\n'


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("run", "r.rsl"), 1, "r.rsl: line 1, column 3: there is no job 'b'"),
        (("run", "bad.rsl"), 1, "bad.rsl: line 1, column 4: "),
        (("run", "good.rsl", "--rts", "x=r.json", "--rts", "x=q.json"), 2, "there are two of the name x"),
        (("run", "good.rsl", "--rts", "nope.json"), 1, "there is no connection file nope.json"),
        (("run", "good.rsl", "--service", "nope.json"), 1, "there is no connection file nope.json"),
        (("serve", "--name", "a b", "--rts", "nope.json"), 2, "--name a b: letters, digits and . _ - make"),
        (("serve", "--name", "top", "--rts", "nope.json"), 1, "there is no connection file nope.json"),
        (("list", "--service", "nope.json"), 1, "start a service with gspc-coallocate serve"),
        (("status", "x", "--service", "nope.json"), 1, "start a service with gspc-coallocate serve"),
        (("cancel", "x", "--service", "nope.json"), 1, "start a service with gspc-coallocate serve"),
        (("stop", "--service", "nope.json"), 1, "start a service with gspc-coallocate serve"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, words: tuple[str, ...], status: int, said: str) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS)
    (tmp_path / "r.rsl").write_text("*(b)")
    (tmp_path / "bad.rsl").write_text("*(a")
    (tmp_path / "good.rsl").write_text("*(a)")
    jobs = ("--jobs", "jobs.toml") if words[0] == "run" else ()
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = run_command("coallocation.commands", *words, *jobs, cwd=tmp_path, env=environment, timeout_s=60)
    assert (done.returncode, done.stdout) == (status, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert said in done.stderr


def test_the_status_tells_a_program_that_not_all_are_ready(tmp_path: Path) -> None:
    nowhere = BarrierPlace("gspc-nobody-listens-here", "j", 1).to_text()
    environment = {BARRIER_VARIABLE: nowhere, "PATH": "/usr/bin:/bin"}
    done = run_command("coallocation.commands", "barrier", cwd=tmp_path, env=environment, timeout_s=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
