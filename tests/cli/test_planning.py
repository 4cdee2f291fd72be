"""``gspc-jobserver plan``: hosts, scores and bytes of a recorded run; nothing runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gspc_trio.cli.common import CommandError, UsageError
from gspc_trio.cli.planning import hosts_of, plan, plan_host, plan_tasks
from gspc_trio.components.job.plan import PlanData, PlanError, PlanHost, PlanTask, speed_of
from gspc_trio.components.job.shell.workflow_file import WorkflowFileError
from gspc_trio.components.rts.messages import RifStatus, RtsStatus
from gspc_trio.workflow.formats.wfformat.trace import Trace, TraceTask
from gspc_trio.workflow.formats.wfformat.write import write_trace

TRACE = Trace(
    "measured",
    {
        "make": TraceTask("make", "make", outputs=("raw",), inputs=("seed",), runtime_s=2),
        "count": TraceTask("count", "count", ("make",), ("raw", "table"), runtime_s=1, cores=2),
    },
    {"seed": 4_000_000, "raw": 3_000_000, "table": 1_000_000},
)
A, B = PlanHost("a", cores=2), PlanHost("b", cores=2)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_text(write_trace(TRACE))
    return path


async def test_people_see_hosts_scores_and_bytes(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await plan(recorded, host=["a,cores=2", "b,cores=2"])
    assert capsys.readouterr().out == (
        "TASK   HOST     SCORE (S)             BYTES\n"
        "make   a                0                 0\n"
        "count  a            0.001         1,000,000\n"
        "\n"
        "HOST     TASKS             BYTES\n"
        "a            2         1,000,000\n"
        "b            0                 0\n"
        "\n"
        "2 tasks by move: 1,000,000 bytes are moved\n"
    )


async def test_programs_get_one_object(recorded: Path, capfd: pytest.CaptureFixture[str]) -> None:
    await plan(recorded, plan="heft", host=["a,cores=2", "b,cores=2,speed=4"], inputs_on="b", json=True)
    told = json.loads(capfd.readouterr().out)
    assert told == {
        "plan": "heft",
        "moved_bytes": 0,
        "hosts": [
            {"host": "a", "tasks": 0, "moved_bytes": 0},
            {"host": "b", "tasks": 2, "moved_bytes": 0},
        ],
        "tasks": [
            {"task": "make", "host": "b", "score_s": 0.5, "moved_bytes": 0,
             "why": "it ends there first, 0.5 s later; 0 bytes are moved"},
            {"task": "count", "host": "b", "score_s": 0.75, "moved_bytes": 0,
             "why": "it ends there first, 0.75 s later; 0 bytes are moved"},
        ],
    }  # fmt: skip


def test_a_task_waits_for_what_makes_its_files() -> None:
    """And not where there are too few cores; what no task makes is spread over all hosts."""
    small = PlanHost("small")
    assert plan_tasks(TRACE, [A, small]) == [
        PlanTask(1, (), (PlanData(4_000_000, ("a",), "seed"),), 3_000_000, run_s=2, name="make"),
        PlanTask(
            2,
            (1,),
            (PlanData(1_000_000, ("small",), "table"),),
            run_s=1,
            name="count",
            avoid=frozenset({"small"}),
        ),
    ]
    with pytest.raises(PlanError, match="task count wants 2 cores of one host, the largest has 1"):
        plan_tasks(TRACE, [small])


def test_a_host_is_described() -> None:
    full = plan_host("a,cores=8,speed=2.5,rack=west,memory=1GiB,features=ssd+avx2")
    assert full == PlanHost("a", "west", frozenset({"ssd", "avx2"}), 2**30, 8, 2.5)
    assert plan_host("a") == PlanHost("a")
    assert plan_host("a,uplink=1e7").uplink_bytes_per_s == 1e7
    for text, wrong in {
        "cores=8": "has no name",
        "a,core=8": "host a has no 'core' (did you mean 'cores'?); there are: cores, speed",
        "a,cores=8,cores=9": "host a: cores is said once, with a value",
        "a,cores=many": "host a: cores is a whole number, speed and uplink (bytes per second) are numbers",
        "a,cores=0": "host a: it needs a core, and a speed and an uplink above 0",
        "a,speed=nan": "host a: it needs a core, and a speed and an uplink above 0",
        "a,uplink=-1": "host a: it needs a core, and a speed and an uplink above 0",
        "a,memory=much": "'much' is not a size",
    }.items():
        with pytest.raises(ValueError, match=re.escape(wrong)):
            plan_host(text)


def test_hosts_are_those_of_a_running_system() -> None:
    """Their names are as in the ids of resources; one without cores is none to plan for."""
    features = ("avx2", "rack:west", "speed:2.5", "uplink:1e7")
    rifs = tuple(
        RifStatus(name, host, "up", 1, "here", {}, "", 1, 2, "", None, features=features)
        for name, host in (("r1", "one"), ("r2", "two"))
    )
    hosts = {"one": ("r1.node", "r1.core0", "r1.core1"), "two": ("r2.node",)}
    status = RtsStatus("1", 1, (), 0.0, rifs, hosts, {}, {}, ())
    host = PlanHost("r1", "rack:west", frozenset(features), 0, 2, 2.5, uplink_bytes_per_s=1e7)
    assert hosts_of(status) == [host]


@pytest.mark.parametrize(
    ("features", "speed"),
    [
        (("speed:2",), 2.0),
        (("ssd",), 1.0),
        (("speed:much",), 1.0),
        (("speed:0",), 1.0),
        (("speed:nan",), 1.0),
        (("speed:2", "speed:3"), 1.0),
    ],
)
def test_a_host_states_its_speed(features: tuple[str, ...], speed: float) -> None:
    assert speed_of(features) == speed


@pytest.mark.parametrize(
    ("hosts", "inputs_on", "tightness", "kind", "wrong"),
    [
        (["a,cores=2", "a"], "", 0.0, CommandError, "two hosts have the same name"),
        (["a,cores=2"], "b", 0.0, CommandError, "there is no host 'b'; there are: a"),
        (["a,cores=2"], "", -1.0, UsageError, "tightness is a finite number, 0 or more"),
        (None, "", 0.0, CommandError, "there is no connection file nowhere"),
    ],
)
async def test_what_cannot_be_planned_is_told(
    recorded: Path,
    hosts: list[str] | None,
    inputs_on: str,
    tightness: float,
    kind: type[Exception],
    wrong: str,
) -> None:
    with pytest.raises(kind, match=wrong):
        await plan(recorded, host=hosts, rts=Path("nowhere"), inputs_on=inputs_on, tightness=tightness)


async def test_a_net_is_to_be_recorded_first(tmp_path: Path) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text("")
    with pytest.raises(
        WorkflowFileError, match=r"run it with --records run\.jsonl, and say gspc-jobserver plan"
    ):
        await plan(flow, host=["a"])
