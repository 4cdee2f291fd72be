from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest
import trio
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

from gspc_trio.core.task import TaskState
from gspc_trio.integrations.metrics import ENDED_JOBS_KEPT_S, metrics_of, open_metrics
from gspc_trio.records.facts import AnomalyChanged, JobChanged, LocalityChanged, TaskChanged, TaskCounts
from gspc_trio.records.progress import JobProgress, Progress
from gspc_trio.tui.model import Model
from tests.tui.support import RTS, WALL_S, fold, opened, small_run

READY, RUNNING, FINISHED, FAILED = TaskState.READY, TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED

Samples = dict[tuple[str, ...], float]


class Shown(Collector):
    def __init__(self, model: Model) -> None:
        self._model = model

    def collect(self) -> list[Metric]:
        return metrics_of(self._model)


def samples(text: str) -> Samples:
    """Name, then values of labels in the order of their names -> value, as Prometheus' parser reads it."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def shown(model: Model) -> Samples:
    registry = CollectorRegistry()
    registry.register(Shown(model))
    return samples(generate_latest(registry).decode())


def test_what_monitoring_has_found_is_told() -> None:
    model = small_run()
    assert not any(name.startswith(("gspc_host_anomaly", "gspc_locality")) for name, *_ in shown(model))
    told = [
        AnomalyChanged(9.0, "a", "dial", "on"),
        AnomalyChanged(9.0, "b", "leak", "on", by_tasks=True),
        AnomalyChanged(9.0, "a", "copy", "on"),
        AnomalyChanged(9.5, "a", "copy", "over"),
        LocalityChanged(9.0, 80, 15, 5),
    ]
    found = shown(fold(model, RTS, told))
    assert {key[1:] for key in found if key[0] == "gspc_host_anomaly"} == {
        ("others", "a", "dial"),
        ("tasks", "b", "leak"),
    }
    assert found["gspc_locality_bytes_total", "inter-rack"] == 5


def test_a_running_system_is_told() -> None:
    found = shown(small_run())
    assert found["gspc_up",] == 1
    assert found["gspc_uptime_seconds",] == 12
    assert [found["gspc_resources", "core", state] for state in ("free", "held", "blocked")] == [1, 3, 0]
    told = [found["gspc_tasks", "j1", "fit", str(state)] for state in (READY, RUNNING, FINISHED, FAILED)]
    assert told == [1, 3, 4, 1]
    assert found["gspc_task_attempts_total", "j1", "fit"] == 5
    assert found["gspc_task_compute_seconds_total", "j1", "fit"] == 2.0
    assert found["gspc_requests_waiting", "j2", "plot"] == 2
    assert found["gspc_oldest_wait_seconds", "j2", "plot"] == 7.0


def test_before_anything_is_heard_it_says_so() -> None:
    assert shown(Model())["gspc_up",] == 0


def test_no_label_grows_with_tasks() -> None:
    model = small_run()
    before = len(shown(model))
    fold(
        model, "j1", [TaskChanged(8.0, "j1", number, READY, 0, f"name {number}") for number in range(20, 500)]
    )
    assert len(shown(model)) == before


def test_a_job_that_is_over_vanishes_after_a_while() -> None:
    model = small_run()
    fold(model, "j1", [JobChanged(10.0, "j1", "finished", "fit")])
    model.tick(WALL_S + 10 + ENDED_JOBS_KEPT_S - 1)
    assert shown(model)["gspc_jobs", "j1", "fit", "finished"] == 1
    model.tick(WALL_S + 10 + ENDED_JOBS_KEPT_S + 1)
    assert ("gspc_jobs", "j1", "fit", "finished") not in shown(model)


@pytest.mark.parametrize(("state", "left"), [("running", [1, 3]), ("stopping", [1, 3]), ("stopped", [0, 0])])
def test_of_a_job_that_is_over_no_task_waits_or_runs(state: str, left: list[int]) -> None:
    found = shown(fold(small_run(), "j1", [JobChanged(10.0, "j1", state, "fit")]))
    assert [found["gspc_tasks", "j1", "fit", str(one)] for one in (READY, RUNNING)] == left
    assert [found["gspc_tasks", "j1", "fit", str(one)] for one in (FINISHED, FAILED)] == [4, 1]


def test_attempts_that_were_followed_by_others_count_also_in_sums() -> None:
    progress = Progress()
    for record in (
        opened(),
        TaskChanged(1.0, "j", 1, RUNNING, 1),
        TaskChanged(2.0, "j", 1, READY, 1, detail="ValueError: no"),
        TaskChanged(3.0, "j", 1, RUNNING, 2),
        TaskChanged(4.0, "j", 1, READY, 1, detail="taken back"),  # it had not begun
        TaskChanged(5.0, "j", 1, RUNNING, 2),
        TaskChanged(6.0, "j", 1, FINISHED, 2, moved=(("east", 100, 0.1), ("west", 11, 0.1))),
    ):
        progress.apply(record)
    job = progress.jobs["j"]
    assert (job.retried, job.moved_bytes) == (1, 111)
    for sums in (job.totals(), job.snapshot()[0]):
        assert isinstance(sums, TaskCounts)
        again = JobProgress("j", 0.0, 0.0)
        again.apply_counts(sums)
        assert (again.retried, again.moved_bytes) == (1, 111)


async def test_they_are_served_while_the_block_runs(tmp_path: Path) -> None:
    async with open_metrics(tmp_path / "none.json", 0) as port:
        url = f"http://127.0.0.1:{port}/metrics"

        def scrape() -> str:
            with urlopen(url, timeout=60) as answer:
                return str(answer.read().decode())

        assert samples(await trio.to_thread.run_sync(scrape)) == {("gspc_up",): 0.0}
        with pytest.raises(OSError, match="in use"):
            async with open_metrics(tmp_path / "none.json", port):
                pass
