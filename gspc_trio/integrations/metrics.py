"""Metrics of a run-time system and its jobs in Prometheus' format, over HTTP (prometheus-client)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import trio
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.records.progress import JobProgress
from gspc_trio.tui.facts import JobFacts
from gspc_trio.tui.live import Follower, connector
from gspc_trio.tui.model import Model

ENDED_JOBS_KEPT_S = 600.0
"""A job that is over is told for so long."""

INTERVAL_S = 1.0
"""Seconds between two batches of records that are asked for: those who scrape come more seldom."""

GOING_ON = ("running", "stopping")
"""States of a job that has not ended. One that was killed has not said what became of its tasks."""

_Labels = TypeVar("_Labels", bound=tuple[str, ...])


def metrics_of(model: Model) -> list[Metric]:
    """Return what a model of a running system says, as metrics; no label of them grows with tasks."""
    jobs = [job for job in model.jobs() if job.ended_ago_s < ENDED_JOBS_KEPT_S]
    return [
        *_system(model),
        *_hosts(model),
        *_monitored(model),
        *_tasks(model, jobs),
        *_requests(model, jobs),
    ]


def _system(model: Model) -> Iterator[Metric]:
    status = model.status
    heard = status is not None and not model.link
    yield _gauge("gspc_up", "Whether the run-time system can be heard.", (), {(): float(heard)})
    if status is None:
        return
    yield _gauge("gspc_uptime_seconds", "Since the run-time system began.", (), {(): status.uptime_s})
    yield _gauge(
        "gspc_rifs", "RIFs, one for each host.", ("state",), _count((it.state,) for it in status.rifs)
    )
    resources = {
        (name, state): number
        for name, entry in status.classes.items()
        for state, number in (("free", entry.free), ("held", entry.held), ("blocked", entry.blocked))
    }
    what = "Resources; a blocked one is above or below one that is held."
    yield _gauge("gspc_resources", what, ("class", "state"), resources)
    workers = _count((worker.state,) for worker in model.rts.workers.values())
    yield _gauge("gspc_workers", "Workers that have computed.", ("state",), workers)
    blocks = _count((block.site, block.state) for block in model.rts.blocks.values())
    yield _gauge("gspc_blocks", "Blocks of batch systems.", ("site", "state"), blocks)
    free = {(name, it.host): it.free_bytes for name, it in status.memories.items()}
    yield _gauge("gspc_memory_free_bytes", "Of what tasks may use.", ("memory", "host"), free)
    total = {(name, it.host): it.total_bytes for name, it in status.memories.items()}
    yield _gauge("gspc_memory_bytes", "What tasks may use.", ("memory", "host"), total)


def _hosts(model: Model) -> Iterator[Metric]:
    loads = {(load.rif_id, load.host): load for load in model.rts.loads.values()}
    for name, what, attribute in (
        ("gspc_host_load", "Processes that want to run, on average over a minute.", "load"),
        ("gspc_host_cpus", "CPUs of the host.", "cpus"),
        ("gspc_host_cpu_ratio", "Part of the time of its CPUs that is used.", "cpu_share"),
        ("gspc_host_memory_used_bytes", "Main memory that is used.", "memory_used_bytes"),
        ("gspc_host_memory_bytes", "Main memory.", "memory_total_bytes"),
    ):
        values = {labels: float(getattr(load, attribute)) for labels, load in loads.items()}
        yield _gauge(name, what, ("rif", "host"), values)


def _monitored(model: Model) -> Iterator[Metric]:
    """Yield what is known with ``gspc-rts start --monitor`` alone."""
    by = {False: "others", True: "tasks"}
    there = {(one.host, one.kind, by[one.by_tasks]): 1.0 for one in model.rts.anomalies.values()}
    yield _gauge("gspc_host_anomaly", "1 while a host has it.", ("host", "kind", "by"), there)
    taken = model.rts.locality
    if taken is not None:
        places = (
            ("node", taken.node_bytes),
            ("rack", taken.rack_bytes),
            ("inter-rack", taken.inter_rack_bytes),
        )
        found = {(name,): float(amount) for name, amount in places}
        yield _counter("gspc_locality_bytes", "Data that tasks took, by where it was.", ("from",), found)


def _tasks(model: Model, jobs: Iterable[JobFacts]) -> Iterator[Metric]:
    labels = ("job", "name")
    states = {(job.job, job.name, job.state): 1 for job in jobs}
    yield _gauge("gspc_jobs", "Jobs that run, and those that are over.", (*labels, "state"), states)
    tasks = {
        (job.job, job.name, str(state)): number if state in FINAL_STATES or job.state in GOING_ON else 0
        for job in jobs
        for state, number in job.counts.items()
    }
    yield _gauge("gspc_tasks", "Tasks; ready ones wait.", (*labels, "state"), tasks)
    attempts, compute_s, moved_bytes = {}, {}, {}
    for job in jobs:
        named = job.job, job.name
        stream = model.streams.get(job.job)
        told = stream.jobs.get(job.job) if stream is not None else None
        told = told or JobProgress(job.job, 0.0, 0.0)
        ended = job.counts.get(TaskState.FINISHED, 0) + job.counts.get(TaskState.FAILED, 0)
        attempts[named] = ended + told.retried
        compute_s[named], moved_bytes[named] = job.computed_s, told.moved_bytes
    yield _counter("gspc_task_attempts", "Attempts that finished, failed or were lost.", labels, attempts)
    yield _counter("gspc_task_compute_seconds", "Compute of finished tasks.", labels, compute_s)
    yield _counter("gspc_transfer_bytes", "What workers fetched from other hosts.", labels, moved_bytes)


def _requests(model: Model, jobs: Iterable[JobFacts]) -> Iterator[Metric]:
    labels = ("job", "name")
    names = {job.job: job.name for job in jobs}
    registered = {(it.job, names.get(it.job, it.name)): it for it in model.registered}
    waiting = {named: entry.demand for named, entry in registered.items()}
    yield _gauge("gspc_requests_waiting", "Grants of resources that a job waits for.", labels, waiting)
    held = {named: entry.held for named, entry in registered.items()}
    yield _gauge("gspc_resources_held", "Resources that a job holds.", labels, held)
    oldest_s = {
        named: max((it.waited_s for it in model.explanations.get(entry.job, ())), default=0.0)
        for named, entry in registered.items()
    }
    yield _gauge("gspc_oldest_wait_seconds", "How long the oldest request of a job waits.", labels, oldest_s)


def _count(labels: Iterable[_Labels]) -> Mapping[_Labels, float]:
    return Counter(labels)


def _gauge(name: str, what: str, labels: tuple[str, ...], values: Mapping[_Labels, float]) -> Metric:
    family = GaugeMetricFamily(name, what, labels=labels)
    for named, value in values.items():
        family.add_metric(named, value)
    return family


def _counter(name: str, what: str, labels: tuple[str, ...], values: Mapping[_Labels, float]) -> Metric:
    family = CounterMetricFamily(name, what, labels=labels)
    for named, value in values.items():
        family.add_metric(named, value)
    return family


class _Followed(Collector):
    """Asks the trio loop for the metrics: those who scrape come in threads."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._token = trio.lowlevel.current_trio_token()

    def collect(self) -> Iterable[Metric]:
        try:
            return trio.from_thread.run_sync(self._now, trio_token=self._token)
        except trio.RunFinishedError:
            return []

    def describe(self) -> Iterable[Metric]:
        return []

    def _now(self) -> list[Metric]:
        self._model.tick(time.time())
        return metrics_of(self._model)


@asynccontextmanager
async def open_metrics(connection_file: Path, port: int, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Serve the metrics of a running system over HTTP while the block runs.

    Args:
        connection_file: of the run-time system; it is followed as gspc-top does.
        port: TCP port; 0 for any free one.
        host: address to listen on.

    Yields:
        The port.

    Raises:
        OSError: the port cannot be had.
    """
    follower = Follower(connector(connection_file, "metrics"), Model(), interval_s=INTERVAL_S)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Followed(follower.model))
    server, thread = start_http_server(port, host, registry)
    try:
        async with open_scope() as nursery:
            nursery.start_soon(follower.run)
            yield server.server_port
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(server.shutdown)
        server.server_close()
        thread.join()
