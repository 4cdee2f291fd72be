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
    from gspc_trio.components.iml import open_iml
    from gspc_trio.components.job import Job, JobFailed, JobResult
    from gspc_trio.components.jobserver import JobSettings
    from gspc_trio.components.rm_client import AcquireInterrupted, AcquireRefused, Resources, open_resources
    from gspc_trio.core.code import Program, SourceFile
    from gspc_trio.core.held import held_resources
    from gspc_trio.core.iml.layout import Layout, replicated, striped
    from gspc_trio.core.staging import Data, Named, StageLimits
    from gspc_trio.core.task import Requirement, TaskOptions
    from gspc_trio.executor import Executor, TaskFailed, TaskFuture
    from gspc_trio.workflow.arcs import each, forward, take
    from gspc_trio.workflow.definition import Workflow
    from gspc_trio.workflow.net import Net
    from gspc_trio.workflow.patterns import farm, map_reduce

_HOMES = {
    "AcquireInterrupted": "gspc_trio.components.rm_client",
    "AcquireRefused": "gspc_trio.components.rm_client",
    "Data": "gspc_trio.core.staging",
    "Executor": "gspc_trio.executor",
    "Job": "gspc_trio.components.job",
    "JobFailed": "gspc_trio.components.job",
    "JobResult": "gspc_trio.components.job",
    "JobSettings": "gspc_trio.components.jobserver",
    "Layout": "gspc_trio.core.iml.layout",
    "Named": "gspc_trio.core.staging",
    "Net": "gspc_trio.workflow.net",
    "Program": "gspc_trio.core.code",
    "Requirement": "gspc_trio.core.task",
    "Resources": "gspc_trio.components.rm_client",
    "RunTimeSystem": "gspc_trio.components.client",
    "SourceFile": "gspc_trio.core.code",
    "StageLimits": "gspc_trio.core.staging",
    "TaskFailed": "gspc_trio.executor",
    "TaskFuture": "gspc_trio.executor",
    "TaskOptions": "gspc_trio.core.task",
    "Workflow": "gspc_trio.workflow.definition",
    "each": "gspc_trio.workflow.arcs",
    "farm": "gspc_trio.workflow.patterns",
    "forward": "gspc_trio.workflow.arcs",
    "held_resources": "gspc_trio.core.held",
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
    "Executor",
    "Job",
    "JobFailed",
    "JobResult",
    "JobSettings",
    "Layout",
    "Named",
    "Net",
    "Program",
    "Requirement",
    "Resources",
    "RunTimeSystem",
    "SourceFile",
    "StageLimits",
    "TaskFailed",
    "TaskFuture",
    "TaskOptions",
    "Workflow",
    "__version__",
    "each",
    "farm",
    "forward",
    "held_resources",
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
