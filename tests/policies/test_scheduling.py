"""The scheduling policy of a job: as one setting, and by the name that a package gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio.components.job.scheduler.interface import TasksReady
from gspc_trio.core.task import Task
from gspc_trio.policies.lookahead import LookAhead
from gspc_trio.policies.scheduling import USUAL, PolicyError, SchedulingPolicy, find_policy


class Nothing(LookAhead, frozen=True):
    def credit(self, waiting: int) -> int:
        return waiting // 0


def test_the_usual_policy_has_a_name() -> None:
    assert find_policy("default") is find_policy(USUAL) is USUAL
    assert SchedulingPolicy() == USUAL


def test_policies_of_installed_packages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "calm.py").write_text(
        "from gspc_trio import SchedulingPolicy\n"
        "def policy():\n    return SchedulingPolicy(ready_max=7)\n"
        "def number():\n    return 7\n"
    )
    info = tmp_path / "calm-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: calm\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gspc_trio.policies]\ncalm = calm:policy\nodd = calm:number\ngone = calm:absent\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert find_policy("calm").ready_max == 7
    for name, why in (
        ("clam", r"no policy 'clam' \(did you mean 'calm'\?\); there are: default, calm, gone, odd"),
        ("odd", "the policy 'odd' of calm:number is no SchedulingPolicy but 7"),
        ("gone", "the policy 'gone' of calm:absent cannot be used: AttributeError"),
    ):
        with pytest.raises(PolicyError, match=why):
            find_policy(name)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (SchedulingPolicy(retry=3), "the policy: its retry is 3, which has no elsewhere_s"),  # type: ignore[arg-type]
        (SchedulingPolicy(ready_max=0), "the policy: ready_max is 0; it is a number of tasks, 1 or more"),
    ],
)
def test_what_is_no_policy_is_refused(policy: SchedulingPolicy, why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        find_policy(policy)


def test_a_scheduler_says_which_part_of_a_policy_failed() -> None:
    scheduler = SchedulingPolicy(look_ahead=Nothing()).scheduler("j7")
    with pytest.raises(
        PolicyError, match=r"Nothing.credit of the scheduling policy raised ZeroDivisionError"
    ):
        scheduler.handle(TasksReady((Task(1, "t", 1),)), 0.0)
    assert scheduler.job == "j7"
