"""Settings of a job, as the programs that run it give them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.job.cache import CacheSettings
from gspc_trio.components.job.lineage import BYTES_MAX
from gspc_trio.components.rts.messages import RegisterJob
from gspc_trio.components.worker.messages import ProcessKey
from gspc_trio.core.imports import missing_extra
from gspc_trio.core.staging import DEFAULT_LIMITS, StageLimits
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.nursery.connections.network import ProcessInfo, address_towards
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.policies.placement import bad_placement
from gspc_trio.policies.queues import bad_assignment
from gspc_trio.policies.scheduling import DEFAULT, SchedulingPolicy, find_policy

if TYPE_CHECKING:
    from gspc_trio.components.job.shell.journal import Journal
    from gspc_trio.components.rts.shell.client import RunTimeSystem

log: logging.Logger = logging.getLogger(__name__)

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""With one of these a job sends spans, if it does not say otherwise."""

_OTEL_PACKAGES = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

RESUME_GRACE_S = 30.0
"""How long the work of a journaled job goes on when its job server has gone."""

_CHECKED = {
    "name": (str, "a text"),
    "listen": (str, "the text of an address"),
    "weight": (int | float, "a number"),
    "priority": (int, "a whole number"),
    "modules": (dict, "a dict: name of a module -> (file name, source text)"),
    "initializer": (bytes, "code as it is encoded: Executor(initializer=...) takes a function"),
    "cache": (CacheSettings | None, "CacheSettings(directory), or None"),
    "model": (str, "the name of a file"),
    "otel": (bool | None, "True, False or None"),
    "traceparent": (str, "the text of a trace context"),
    "assign": (str, 'queues, or ""'),
    "placement": (str, 'one of fifo, compact, fair and progressive, or ""'),
    "plan": (str, "the name of a plan: move or heft"),
}
"""Settings that people give, and what they are: where they are used, no error would say whose they are."""


class JobSettings(Struct, frozen=True):
    """Settings of a job.

    Attributes:
        name: shown to users.
        keep_going: after a failure, run everything that does not depend on the failed task.
        weight: share of the resources, relative to other jobs of the same priority.
        priority: jobs of a higher one get resources first; nothing that runs is interrupted for them.
        fate: whether tasks in a worker's phases share their fate (WRK-3).
        threads: run tasks in threads, not in processes.
        listen: address at which the job server listens; "" for one that the clients of its RTS can reach.
        modules: sources shipped with the job, module name -> (file name, text).
        data: the memory layer for large values; None: that of the run-time system, if it has one.
        large_bytes_min: values of so many bytes or more go into the memory layer; None: 65,536.
        near_data: send tasks to hosts that hold their data, where possible (SCH-8).
        directory: of the files on this host that tasks fetch and store; "": the working directory.
        stage: how much its tasks may stage.
        lineage_bytes_max: arguments that are remembered to make lost data again; beyond that it cannot be.
        failed_max: so many of the tasks that failed last can be tried again on request; None: all.
        process_key: by which tasks may speak to managers of this process; None: they may not. ``open_job``
            and the executor fill it in.
        initializer: code (``compute.code.function_code``) that each compute process, or thread, runs before
            its first task; while it fails, tasks fail. b"" for none.
        process_tasks_max: after so many tasks a compute process is replaced by a fresh one; 0: never.
        policy: how tasks are tried again, sent ahead and asked for: a ``SchedulingPolicy``, or the name of
            one that an installed package offers.
        cache: where results are kept for later runs, and looked for; None: nowhere.
        model: file in which the run times of variants are kept for later runs; "": they are forgotten.
        otel: whether spans of the job go to a collector by OpenTelemetry; None: if the variable
            ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set.
        traceparent: the span that the job is part of, in W3C's form; "": what ``TRACEPARENT`` says.
        placement: which free resource it gets next: ``fifo`` (free for longest), ``compact`` (fill one host
            after the other), ``fair`` (spread over hosts), ``progressive`` (spread while there is room, then
            fill up); "": as the run-time system does.
        assign: ``queues``: each resource that the job holds has a queue of tasks, and idle ones steal; "": a
            task goes where a resource comes free.
        plan: tasks are planned on hosts as soon as they are known: ``move`` moves little data, ``heft`` ends
            soon. "": they are not. A plan takes the place of ``near_data``.
        tightness: of the plan ``move``: weight of the mean distance to the other planned tasks.

    Raises:
        TypeError, ValueError: a setting cannot be used.
    """

    name: str = "job"
    keep_going: bool = False
    weight: float = 1.0
    fate: bool = True
    threads: bool = False
    listen: str = ""
    modules: dict[str, tuple[str, str]] = field(default_factory=dict)
    data: DataLayer | None = None
    near_data: bool = True
    large_bytes_min: int | None = None
    directory: str = ""
    stage: StageLimits = DEFAULT_LIMITS
    lineage_bytes_max: int = BYTES_MAX
    failed_max: int | None = None
    process_key: ProcessKey | None = None
    priority: int = 0
    initializer: bytes = b""
    process_tasks_max: int = 0
    policy: SchedulingPolicy | str = DEFAULT
    cache: CacheSettings | None = None
    model: str = ""
    otel: bool | None = None
    traceparent: str = ""
    placement: str = ""
    assign: str = ""
    plan: str = ""
    tightness: float = 0.0

    def __post_init__(self) -> None:
        for name, (kind, words) in _CHECKED.items():
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} of a job is {words}, not {getattr(self, name)!r:.60}")
        try:
            self.name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"name of a job is a text that UTF-8 can write, not {self.name!r:.60}") from None
        if self.placement and (wrong := bad_placement(self.placement)):
            raise ValueError(f"placement of a job: {wrong}")
        if wrong := bad_assignment(self.assign):
            raise ValueError(f"assign of a job: {wrong}")
        if self.plan or self.tightness:
            from gspc_trio.policies.plans.by_name import find_plan  # only here: few jobs are planned

            find_plan(self.plan or "move", self.tightness)
        if self.plan and self.assign:
            raise ValueError(
                f"a job has a plan or queues of resources: leave out plan={self.plan!r} or assign"
            )

    def listening(self, rts: str = "memory:") -> JobSettings:
        """Return the same settings with any free port at which whoever reaches the RTS can reach the job.

        Args:
            rts: address of the run-time system; in memory: only this host can reach the job.
        """
        here = rts.startswith("memory:")
        return replace(self, listen="ws://127.0.0.1:0" if here else address_towards(rts))

    def found_by_clients_of(self, rts: RunTimeSystem) -> JobSettings:
        """Have the job listen if clients outside this process may look for it, to watch or to stop it."""
        is_found = self.listen or not rts.has_outsiders
        return self if is_found else self.listening(rts.outside or rts.address)

    @property
    def may_have_ranges(self) -> bool:
        """Whether many items may be one task, as far as settings are concerned."""
        return not (self.threads or self.plan or self.process_tasks_max or self.cache) and find_policy(
            self.policy, self.assign
        ) == find_policy(DEFAULT, self.assign)


STAGE_INS_PLANNED = 8
"""The data of so many tasks of a job with a plan is fetched at a time at one worker."""


def stage_limits(settings: JobSettings) -> StageLimits:
    """Return how much the tasks of a job may stage, with a number of tasks that fetch at a time."""
    if settings.stage.attempts_max:
        return settings.stage
    return replace(settings.stage, attempts_max=STAGE_INS_PLANNED if settings.plan else 1)


class OtelMissing(ImportError):
    """A job is to send spans, and OpenTelemetry is not installed."""


def is_traced(settings: JobSettings, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether spans of a job are sent.

    Args:
        settings: of the job.
        environment: its variables count if the settings do not say.

    Raises:
        OtelMissing: the settings ask for it, and OpenTelemetry is not installed.
    """
    asked = settings.otel
    if asked is None:
        disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        asked = not disabled and any(environment.get(name) for name in ENDPOINT_VARIABLES)
    if not asked:
        return False
    with suppress(ModuleNotFoundError):
        if all(find_spec(name) for name in _OTEL_PACKAGES):
            return True
    why = missing_extra("sending spans", "opentelemetry-exporter-otlp-proto-http", "otel")
    if settings.otel:
        raise OtelMissing(why)
    log.warning("%s is set, and no spans are sent: %s", ENDPOINT_VARIABLES[0], why)
    return False


def registration(
    settings: JobSettings,
    here: ProcessInfo,
    address: str,
    journal: Journal | None,
    rts: Peer,
    has_layer: bool,
) -> RegisterJob:
    """Return what a run-time system is told of a job.

    Args:
        settings: of the job.
        here: its job server.
        address: where it listens, or "".
        journal: of the job, or None.
        rts: the run-time system.
        has_layer: whether the job has a memory layer: then its results do not outlive its job server.
    """
    name, weight, priority = settings.name, settings.weight, settings.priority
    grace_s, adopts = 0.0, ""
    if journal is not None and not has_layer:  # results that lie in a layer go with the job server
        grace_s, adopts = RESUME_GRACE_S, journal.earlier_job(rts.instance)
    return RegisterJob(
        name, here.pid, here.host, address, weight, grace_s, adopts, priority, placement=settings.placement
    )
