"""``python -m gspc_trio.testing``: replays, stories, shorter schedules."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.testing.__main__ import main
from gspc_trio.testing.faults import Fault, Faults
from gspc_trio.testing.hunt import describe_schedule, hunt, parse_schedule, shrink
from gspc_trio.testing.options import ALL_TASKS_MAX, SHAPE_MAX, any_shape
from gspc_trio.testing.simulation import Options, simulate

HANG_S = 600.0

CLUSTER = Faults(studies=False)
"""Nothing is simulated besides the cluster."""


@pytest.fixture(autouse=True)
def logging_stays(monkeypatch):
    monkeypatch.setattr("gspc_trio.testing.__main__.quiet", lambda: None)
    monkeypatch.setattr("gspc_trio.testing.hunt.quiet", lambda: None)


def same_epoch_again(patch) -> None:
    """A restarted resource manager counts its grants from the beginning."""
    begin = ResourceManager.__init__
    patch(ResourceManager, "__init__", lambda rm, _epoch, *arguments: begin(rm, 1, *arguments))


REPLAY = """
from gspc_trio.testing.faults import Faults
from gspc_trio.testing.hunt import quiet
from gspc_trio.testing.simulation import Options, simulate

quiet()
cluster = Options(tasks=20, faults=Faults(studies=False))
print(simulate(50003, cluster).digest, simulate(87, Options(tasks=12)).digest)
"""
"""Replays two seeds, one with all that is simulated besides the cluster. Data in a memory layer is lost."""


def test_other_processes_with_other_hashes_replay_the_same_events():
    """What is done in the order of a set of words is done in another one there."""
    replays = [
        subprocess.Popen(
            [sys.executable, "-c", REPLAY],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("0", "1")
    ]
    digests = {replay.communicate(timeout=HANG_S)[0] for replay in replays}
    assert len(digests) == 1
    assert len(digests.pop().split()) == 2


def test_a_broken_run_tells_its_story_and_how_to_replay_it(monkeypatch, capsys):
    same_epoch_again(monkeypatch.setattr)
    schedule = "kill:rts:140,stranger:rts:2"
    assert main(["--seed", "3", "--schedule", schedule]) == 1
    printed = capsys.readouterr().out
    assert "BROKEN: Broken: grant (1, 1) follows" in printed
    assert " AnsweringManager: " in printed
    assert f"--seed 3 --schedule {schedule}" in printed


def test_a_schedule_shrinks_to_what_is_needed(monkeypatch):
    same_epoch_again(monkeypatch.setattr)
    extra = tuple(Fault("stranger", "rts", step) for step in (3, 9, 20, 40))
    schedule = (*extra[:2], Fault("kill", "rts", 180), *extra[2:])
    options = Options(schedule=schedule, faults=CLUSTER)
    report = simulate(3, options)
    assert report.broken
    assert shrink(report).schedule == (Fault("kill", "rts", 180),)


def test_a_hunt_reports_every_seed_in_order(capsys):
    assert [report.seed for report in hunt(range(3), Options(tasks=4, faults=CLUSTER), 2)] == [0, 1, 2]
    assert main(["--seeds", "2", "--tasks", "4", "--workers", "1", "--faults", "studies=0"]) == 0
    assert "2 seeds, 0 broken" in capsys.readouterr().out


def test_a_shape_is_drawn_from_the_seed_within_bounds_and_the_report_says_which(capsys):
    shapes = [any_shape(seed, Options()) for seed in range(300)]
    for name, most in SHAPE_MAX.items():
        drawn = [getattr(shape, name) for shape in shapes]
        assert min(drawn) == 1, name
        assert 0.9 * most < max(drawn) <= most, name
    assert all(shape.jobs * shape.tasks <= ALL_TASKS_MAX for shape in shapes)
    one_core = [seed for seed, shape in enumerate(shapes) if shape.hosts * shape.cores == 1]
    small = min(one_core, key=lambda seed: shapes[seed].jobs * shapes[seed].tasks)
    (report,) = hunt([small], Options(), 1, any_shapes=True)
    assert report.broken == "", "nobody waits for two cores where there is one"
    assert report.options == shapes[small]
    assert main(["--seed", str(small), "--any-shape"]) == 0
    assert report.digest in capsys.readouterr().out


def test_schedules_and_menus_are_read_as_they_are_written():
    schedule = (Fault("kill", "rif", 12), Fault("pause", "rts", 40, 7.0))
    assert parse_schedule(describe_schedule(schedule)) == schedule
    assert parse_schedule("none") == ()
    assert Faults.parse("none,kills=2") == Faults(**{**_zeros(), "kills": 2})


def _zeros() -> dict[str, int]:
    return {name: 0 for name in Faults.__slots__ if not name.startswith("_")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--faults", "floods=1"], "no fault 'floods'; there are: kills,"),
        (["--schedule", "kill:moon:1"], "kill does not happen to 'moon', but to rts,"),
        (["--schedule", "eat:rts:1"], "no fault 'eat'; there are: kill,"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments, words, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err
