"""gspc-trio: a Trio-based runtime for many-task workflows.

The public names are loaded when they are first used (PEP 562), so that importing a lower layer does not
import trio.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gspc_trio.core.imports import collector_paused
from gspc_trio.version import VERSION as __version__

if TYPE_CHECKING:
    from gspc_trio.components.coallocation.language import parse_coallocation
    from gspc_trio.components.coallocation.shell.request import open_coallocation
    from gspc_trio.components.coallocation.tree import RslError
    from gspc_trio.components.embed import open_rts
    from gspc_trio.components.embedded_job import open_job
    from gspc_trio.components.job.cache import CacheCounts, CacheError, CacheSettings
    from gspc_trio.components.job.result import JobFailed, JobResult
    from gspc_trio.components.job.shell.handle import Job
    from gspc_trio.components.job.shell.output import show_output
    from gspc_trio.components.job.shell.settings import JobSettings
    from gspc_trio.components.job.shell.streams import NotAnswered
    from gspc_trio.components.launcher.options import BadOption
    from gspc_trio.components.launcher.shell.service import StudyEnd, open_launcher
    from gspc_trio.components.provision.shell.hardware import hw_info
    from gspc_trio.components.rts.shell.acquire import (
        AcquireInterrupted,
        AcquireRefused,
        Resources,
        open_resources,
    )
    from gspc_trio.components.rts.shell.client import RunTimeSystem
    from gspc_trio.components.rts.shell.direct import CallFailed, open_worker
    from gspc_trio.components.rts.shell.several import LocationError
    from gspc_trio.compute.nested import current_executor
    from gspc_trio.compute.results.stream import stream
    from gspc_trio.core.code import Program, SourceFile, Variant, Variants
    from gspc_trio.core.current import current_traceparent, event
    from gspc_trio.core.held import held_resources
    from gspc_trio.core.published import NoNamedData, empty, publish, read_published
    from gspc_trio.core.staging import Data, Named, StageLimits, optional
    from gspc_trio.core.task import Requirement, Shape, TaskOptions
    from gspc_trio.executor import Executor, ExecutorBroken, TaskFailed, TaskFuture
    from gspc_trio.executor.process_pool import AsyncResult, Pool
    from gspc_trio.executor.trio_pool import PoolOutcomes, PoolResults, TaskPool, open_pool
    from gspc_trio.iml.errors import DataLost, LayerGone, NoRoom, UnknownName
    from gspc_trio.iml.layout import Layout, replicated, striped
    from gspc_trio.iml.shell.layer import open_iml
    from gspc_trio.policies.locations import LeastEnd
    from gspc_trio.policies.lookahead import LookAhead, WorkAhead
    from gspc_trio.policies.retry import Retry
    from gspc_trio.policies.scheduling import SchedulingPolicy
    from gspc_trio.policies.variants import LeastTime
    from gspc_trio.workflow.arcs import WorkflowError, each, forward, respond, take
    from gspc_trio.workflow.definition import Workflow, rpc, transformation
    from gspc_trio.workflow.net import Net
    from gspc_trio.workflow.patterns.accumulate import accumulate
    from gspc_trio.workflow.patterns.farm import farm
    from gspc_trio.workflow.patterns.filters import discard, keep
    from gspc_trio.workflow.patterns.map_reduce import map_reduce
    from gspc_trio.workflow.patterns.pipeline import pipeline, stage
    from gspc_trio.workflow.patterns.pool import DataLayout, pool, task
    from gspc_trio.workflow.patterns.split_join import split_join

_HOMES = {
    "AcquireInterrupted": "gspc_trio.components.rts.shell.acquire",
    "AcquireRefused": "gspc_trio.components.rts.shell.acquire",
    "AsyncResult": "gspc_trio.executor.process_pool",
    "BadOption": "gspc_trio.components.launcher.options",
    "CacheCounts": "gspc_trio.components.job.cache",
    "CacheError": "gspc_trio.components.job.cache",
    "CacheSettings": "gspc_trio.components.job.cache",
    "CallFailed": "gspc_trio.components.rts.shell.direct",
    "Data": "gspc_trio.core.staging",
    "DataLayout": "gspc_trio.workflow.patterns.pool",
    "DataLost": "gspc_trio.iml.errors",
    "Executor": "gspc_trio.executor",
    "ExecutorBroken": "gspc_trio.executor",
    "Job": "gspc_trio.components.job.shell.handle",
    "JobFailed": "gspc_trio.components.job.result",
    "JobResult": "gspc_trio.components.job.result",
    "JobSettings": "gspc_trio.components.job.shell.settings",
    "LayerGone": "gspc_trio.iml.errors",
    "Layout": "gspc_trio.iml.layout",
    "LeastEnd": "gspc_trio.policies.locations",
    "LeastTime": "gspc_trio.policies.variants",
    "LocationError": "gspc_trio.components.rts.shell.several",
    "LookAhead": "gspc_trio.policies.lookahead",
    "Named": "gspc_trio.core.staging",
    "Net": "gspc_trio.workflow.net",
    "NoNamedData": "gspc_trio.core.published",
    "NotAnswered": "gspc_trio.components.job.shell.streams",
    "NoRoom": "gspc_trio.iml.errors",
    "Pool": "gspc_trio.executor.process_pool",
    "PoolOutcomes": "gspc_trio.executor.trio_pool",
    "PoolResults": "gspc_trio.executor.trio_pool",
    "Program": "gspc_trio.core.code",
    "Requirement": "gspc_trio.core.task",
    "Resources": "gspc_trio.components.rts.shell.acquire",
    "Retry": "gspc_trio.policies.retry",
    "RslError": "gspc_trio.components.coallocation.tree",
    "RunTimeSystem": "gspc_trio.components.rts.shell.client",
    "SchedulingPolicy": "gspc_trio.policies.scheduling",
    "Shape": "gspc_trio.core.task",
    "SourceFile": "gspc_trio.core.code",
    "StageLimits": "gspc_trio.core.staging",
    "StudyEnd": "gspc_trio.components.launcher.shell.service",
    "TaskFailed": "gspc_trio.executor",
    "TaskFuture": "gspc_trio.executor",
    "TaskOptions": "gspc_trio.core.task",
    "TaskPool": "gspc_trio.executor.trio_pool",
    "UnknownName": "gspc_trio.iml.errors",
    "Variant": "gspc_trio.core.code",
    "Variants": "gspc_trio.core.code",
    "WorkAhead": "gspc_trio.policies.lookahead",
    "Workflow": "gspc_trio.workflow.definition",
    "WorkflowError": "gspc_trio.workflow.arcs",
    "accumulate": "gspc_trio.workflow.patterns.accumulate",
    "current_executor": "gspc_trio.compute.nested",
    "current_traceparent": "gspc_trio.core.current",
    "event": "gspc_trio.core.current",
    "discard": "gspc_trio.workflow.patterns.filters",
    "each": "gspc_trio.workflow.arcs",
    "empty": "gspc_trio.core.published",
    "farm": "gspc_trio.workflow.patterns.farm",
    "forward": "gspc_trio.workflow.arcs",
    "held_resources": "gspc_trio.core.held",
    "hw_info": "gspc_trio.components.provision.shell.hardware",
    "keep": "gspc_trio.workflow.patterns.filters",
    "map_reduce": "gspc_trio.workflow.patterns.map_reduce",
    "open_coallocation": "gspc_trio.components.coallocation.shell.request",
    "open_iml": "gspc_trio.iml.shell.layer",
    "open_job": "gspc_trio.components.embedded_job",
    "open_launcher": "gspc_trio.components.launcher.shell.service",
    "open_pool": "gspc_trio.executor.trio_pool",
    "open_resources": "gspc_trio.components.rts.shell.acquire",
    "open_rts": "gspc_trio.components.embed",
    "open_worker": "gspc_trio.components.rts.shell.direct",
    "optional": "gspc_trio.core.staging",
    "parse_coallocation": "gspc_trio.components.coallocation.language",
    "pipeline": "gspc_trio.workflow.patterns.pipeline",
    "pool": "gspc_trio.workflow.patterns.pool",
    "publish": "gspc_trio.core.published",
    "read_published": "gspc_trio.core.published",
    "replicated": "gspc_trio.iml.layout",
    "respond": "gspc_trio.workflow.arcs",
    "rpc": "gspc_trio.workflow.definition",
    "show_output": "gspc_trio.components.job.shell.output",
    "split_join": "gspc_trio.workflow.patterns.split_join",
    "stage": "gspc_trio.workflow.patterns.pipeline",
    "stream": "gspc_trio.compute.results.stream",
    "striped": "gspc_trio.iml.layout",
    "take": "gspc_trio.workflow.arcs",
    "task": "gspc_trio.workflow.patterns.pool",
    "transformation": "gspc_trio.workflow.definition",
}

__all__ = [
    "AcquireInterrupted",
    "AcquireRefused",
    "AsyncResult",
    "BadOption",
    "CacheCounts",
    "CacheError",
    "CacheSettings",
    "CallFailed",
    "Data",
    "DataLayout",
    "DataLost",
    "Executor",
    "ExecutorBroken",
    "Job",
    "JobFailed",
    "JobResult",
    "JobSettings",
    "LayerGone",
    "Layout",
    "LeastEnd",
    "LeastTime",
    "LocationError",
    "LookAhead",
    "Named",
    "Net",
    "NoNamedData",
    "NoRoom",
    "NotAnswered",
    "Pool",
    "PoolOutcomes",
    "PoolResults",
    "Program",
    "Requirement",
    "Resources",
    "Retry",
    "RslError",
    "RunTimeSystem",
    "SchedulingPolicy",
    "Shape",
    "SourceFile",
    "StageLimits",
    "StudyEnd",
    "TaskFailed",
    "TaskFuture",
    "TaskOptions",
    "TaskPool",
    "UnknownName",
    "Variant",
    "Variants",
    "WorkAhead",
    "Workflow",
    "WorkflowError",
    "__version__",
    "accumulate",
    "current_executor",
    "current_traceparent",
    "discard",
    "each",
    "empty",
    "event",
    "farm",
    "forward",
    "held_resources",
    "hw_info",
    "keep",
    "map_reduce",
    "open_coallocation",
    "open_iml",
    "open_job",
    "open_launcher",
    "open_pool",
    "open_resources",
    "open_rts",
    "open_worker",
    "optional",
    "parse_coallocation",
    "pipeline",
    "pool",
    "publish",
    "read_published",
    "replicated",
    "respond",
    "rpc",
    "show_output",
    "split_join",
    "stage",
    "stream",
    "striped",
    "take",
    "task",
    "transformation",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gspc_trio' has no attribute {name!r}")
    with collector_paused():
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
