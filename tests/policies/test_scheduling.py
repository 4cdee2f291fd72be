"""The scheduling policy of a job: as one setting, and by the name that a package gives it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from gspc_trio.components.job.locations.state import LocationPolicy
from gspc_trio.components.job.scheduler.interface import (
    AssignPolicy,
    LookAheadPolicy,
    ResourcesUp,
    RetryPolicy,
    TasksReady,
    VariantCost,
    VariantPolicy,
    WorkAheadPolicy,
)
from gspc_trio.components.rm.messages import Grant
from gspc_trio.core.code import CodeEntry, Program
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Task
from gspc_trio.policies.lookahead import LookAhead, WorkAhead
from gspc_trio.policies.queues import Queues
from gspc_trio.policies.retry import Retry
from gspc_trio.policies.scheduling import (
    USUAL,
    VALID,
    PolicyError,
    SchedulingPolicy,
    blamed,
    find_policy,
    usual_policy,
)
from gspc_trio.policies.variants import LeastTime


class Nothing(LookAhead, frozen=True):
    def credit(self, waiting: int) -> int:
        return waiting // 0


class Never(WorkAhead, frozen=True):
    def depth(self, *_measured: float) -> tuple[int, int]:
        return (0, 0)


class Wordy(Retry, frozen=True):
    elsewhere_s: str = "soon"  # type: ignore[assignment]


def test_the_usual_policy_has_a_name() -> None:
    assert find_policy("default") is find_policy(USUAL) is USUAL
    assert SchedulingPolicy() == USUAL


def test_programs_are_sent_further_ahead_if_nothing_else_runs_and_nobody_says_otherwise() -> None:
    program, function = CodeEntry(Program(["true"])), CodeEntry(len)
    assert usual_policy([program, program]) == SchedulingPolicy(work_ahead=WorkAhead(ahead_s=0.02))
    assert [usual_policy(entries) for entries in ([], [function], [program, function])] == [USUAL] * 3


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
        (SchedulingPolicy(look_ahead=Nothing), r"its look_ahead is a class.*: write Nothing\(\)"),  # type: ignore[arg-type]
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


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("usual", "method", "value", "valid"),
    [
        (WorkAhead, "depth", (0, 0), "1 <= at_least <= at_most"),
        (WorkAhead, "depth", (3, 2), "1 <= at_least <= at_most"),
        (WorkAhead, "depth", None, "two whole numbers"),
        (WorkAhead, "beside_long", 0, "a whole number, 1 or more"),
        (WorkAhead, "takes_long", None, "True or False"),
        (WorkAhead, "learn", NAN, "a finite number, 0 or more"),
        (Retry, "after_failure", NAN, "a finite number, 0 or more, or None"),
        (Retry, "after_failure", INF, "a finite number, 0 or more, or None"),
        (Retry, "after_failure", "soon", "a finite number, 0 or more, or None"),
        (Retry, "after_failure", True, "a finite number, 0 or more, or None"),
        (Retry, "after_loss", -1.0, "a finite number, 0 or more, or None"),
        (Retry, "after_wait", None, "a finite number, 0 or more"),
        (Retry, "alone_after", None, "True or False"),
        (LookAhead, "shape_of", None, "a Shape"),
        (LookAhead, "credit", 1.5, "a whole number, 0 or more"),
        (Queues, "task_s", None, "a finite number, 0 or more"),
        (Queues, "steals", None, "True or False"),
    ],
)
def test_a_value_that_cannot_be_used_names_its_method(
    usual: type, method: str, value: object, valid: str
) -> None:
    odd = type("Odd", (usual,), {method: lambda *_args: value}, frozen=True)()
    with pytest.raises(PolicyError) as raised:
        getattr(blamed(odd), method)(1, 2, 3)
    says = f"Odd.{method} of the scheduling policy is {value!r}; it must be "
    assert str(raised.value).startswith(says)
    assert valid in str(raised.value)


def test_a_time_that_is_no_number_is_refused_and_there_is_a_rule_for_each_value() -> None:
    with pytest.raises(PolicyError, match=r"Wordy.elsewhere_s of the scheduling policy is 'soon'"):
        _ = blamed(Wordy()).elsewhere_s
    kinds = (RetryPolicy, WorkAheadPolicy, LookAheadPolicy, VariantPolicy, LocationPolicy, AssignPolicy)
    assert {name for kind in kinds for name in vars(kind) if not name.startswith("_")} == {*VALID}


def test_a_choice_of_what_is_no_variant_or_cannot_be_taken_is_refused() -> None:
    class Odd(LeastTime, frozen=True):
        def choose(self, costs: Sequence[VariantCost | None], in_order: bool) -> int | None:
            return None if in_order else max(1, len(costs) - 1)

    there = VariantCost(0.0, 0.0, None)
    assert blamed(Odd()).choose([None, there], False) == 1
    for costs in ([there], [there, None]):
        with pytest.raises(PolicyError, match=r"Odd.choose of .* is 1; it must be one of \[0\], or None"):
            blamed(Odd()).choose(costs, False)


def test_queues_are_asked_for_by_name_and_leave_a_policy_that_has_its_own_alone() -> None:
    assert find_policy("default", "queues") == SchedulingPolicy(assign=Queues())
    own = SchedulingPolicy(assign=Queues(margin_s=1.0))
    assert find_policy(own, "queues") is own
    assert find_policy("default").assign is None
    with pytest.raises(PolicyError, match=r"there is no such way to assign tasks .did you mean 'queues'"):
        find_policy("default", "queue")
    with pytest.raises(PolicyError, match="its assign is 3, which has no task_s"):
        find_policy(SchedulingPolicy(assign=cast("AssignPolicy", 3)))


def test_parts_that_are_the_usual_ones_are_asked_directly() -> None:
    for part in (USUAL.retry, USUAL.work_ahead, USUAL.look_ahead, USUAL.variants, Queues()):
        assert blamed(part) is part


def test_a_scheduler_of_a_policy_that_sends_nothing_says_so() -> None:
    scheduler = SchedulingPolicy(work_ahead=Never()).scheduler("j7")
    scheduler.handle(ResourcesUp((Resource("core0", "core"),)), 0.0)
    scheduler.handle(TasksReady((Task(1, "t", 1),)), 0.0)
    with pytest.raises(PolicyError, match=r"Never.depth of the scheduling policy is \(0, 0\); it must be"):
        scheduler.handle(Grant("j7", CORE, (1, 1), ("core0",)), 0.0)
