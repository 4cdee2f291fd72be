"""gspc-trio: a Trio-based runtime for many-task workflows.

The public names are loaded when they are first used (PEP 562), so that importing a lower layer does not
import trio.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gspc_trio.version import VERSION as __version__

if TYPE_CHECKING:
    from gspc_trio.components.client import RunTimeSystem
    from gspc_trio.components.embed import open_job, open_rts
    from gspc_trio.components.hardware import hw_info
    from gspc_trio.components.iml import open_iml
    from gspc_trio.components.job import Job, JobFailed, JobResult
    from gspc_trio.components.jobserver import JobSettings
    from gspc_trio.components.rm_client import AcquireInterrupted, AcquireRefused, Resources, open_resources
    from gspc_trio.core.code import Program, SourceFile
    from gspc_trio.core.held import held_resources
    from gspc_trio.core.iml.errors import DataLost, LayerGone, NoRoom, UnknownName
    from gspc_trio.core.iml.layout import Layout, replicated, striped
    from gspc_trio.core.staging import Data, Named, StageLimits
    from gspc_trio.core.task import Requirement, Shape, TaskOptions
    from gspc_trio.executor import Executor, ExecutorBroken, TaskFailed, TaskFuture
    from gspc_trio.workflow.arcs import WorkflowError, each, forward, take
    from gspc_trio.workflow.definition import Workflow
    from gspc_trio.workflow.net import Net
    from gspc_trio.workflow.patterns import farm, map_reduce

_HOMES = {
    "AcquireInterrupted": "gspc_trio.components.rm_client",
    "AcquireRefused": "gspc_trio.components.rm_client",
    "Data": "gspc_trio.core.staging",
    "DataLost": "gspc_trio.core.iml.errors",
    "Executor": "gspc_trio.executor",
    "ExecutorBroken": "gspc_trio.executor",
    "Job": "gspc_trio.components.job",
    "JobFailed": "gspc_trio.components.job",
    "JobResult": "gspc_trio.components.job",
    "JobSettings": "gspc_trio.components.jobserver",
    "LayerGone": "gspc_trio.core.iml.errors",
    "Layout": "gspc_trio.core.iml.layout",
    "Named": "gspc_trio.core.staging",
    "Net": "gspc_trio.workflow.net",
    "NoRoom": "gspc_trio.core.iml.errors",
    "Program": "gspc_trio.core.code",
    "Requirement": "gspc_trio.core.task",
    "Resources": "gspc_trio.components.rm_client",
    "RunTimeSystem": "gspc_trio.components.client",
    "Shape": "gspc_trio.core.task",
    "SourceFile": "gspc_trio.core.code",
    "StageLimits": "gspc_trio.core.staging",
    "TaskFailed": "gspc_trio.executor",
    "TaskFuture": "gspc_trio.executor",
    "TaskOptions": "gspc_trio.core.task",
    "UnknownName": "gspc_trio.core.iml.errors",
    "Workflow": "gspc_trio.workflow.definition",
    "WorkflowError": "gspc_trio.workflow.arcs",
    "each": "gspc_trio.workflow.arcs",
    "farm": "gspc_trio.workflow.patterns",
    "forward": "gspc_trio.workflow.arcs",
    "held_resources": "gspc_trio.core.held",
    "hw_info": "gspc_trio.components.hardware",
    "map_reduce": "gspc_trio.workflow.patterns",
    "open_iml": "gspc_trio.components.iml",
    "open_job": "gspc_trio.components.embed",
    "open_resources": "gspc_trio.components.rm_client",
    "open_rts": "gspc_trio.components.embed",
    "replicated": "gspc_trio.core.iml.layout",
    "striped": "gspc_trio.core.iml.layout",
    "take": "gspc_trio.workflow.arcs",
}

__all__ = [
    "AcquireInterrupted",
    "AcquireRefused",
    "Data",
    "DataLost",
    "Executor",
    "ExecutorBroken",
    "Job",
    "JobFailed",
    "JobResult",
    "JobSettings",
    "LayerGone",
    "Layout",
    "Named",
    "Net",
    "NoRoom",
    "Program",
    "Requirement",
    "Resources",
    "RunTimeSystem",
    "Shape",
    "SourceFile",
    "StageLimits",
    "TaskFailed",
    "TaskFuture",
    "TaskOptions",
    "UnknownName",
    "Workflow",
    "WorkflowError",
    "__version__",
    "each",
    "farm",
    "forward",
    "held_resources",
    "hw_info",
    "map_reduce",
    "open_iml",
    "open_job",
    "open_resources",
    "open_rts",
    "replicated",
    "striped",
    "take",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gspc_trio' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
