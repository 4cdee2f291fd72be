"""What ``kubectl get jobs,pods --output=json`` says of jobs."""

from __future__ import annotations

import msgspec

from gspc_trio.components.provision.batch import BatchJob, BatchState, QueryFailed

NAME_LABEL = "gspc-trio/job"
"""Label with the name of a job: of it, its pods and its secret."""

_HOPELESS = {"ErrImageNeverPull", "InvalidImageName"}
"""What a container waits for in vain."""


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Terminated(msgspec.Struct):
    exit_code: int = msgspec.field(name="exitCode", default=0)
    reason: str = ""


class _ContainerState(msgspec.Struct):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _Container(msgspec.Struct):
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)


class _Status(msgspec.Struct):
    """Of a job or a pod."""

    phase: str = ""
    reason: str = ""
    conditions: list[_Condition] = []
    containers: list[_Container] = msgspec.field(name="containerStatuses", default_factory=list)


class _Labels(msgspec.Struct):
    labels: dict[str, str] = {}


class _Item(msgspec.Struct):
    kind: str
    metadata: _Labels
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[_Item]


def read_jobs(output: str) -> tuple[BatchJob, ...]:
    """Return the jobs of a list of jobs and pods.

    Raises:
        QueryFailed: it is no such list.
    """
    try:
        items = msgspec.json.decode(output, type=_List).items
    except msgspec.MsgspecError as error:
        raise QueryFailed(f"kubectl says what cannot be read: {error}") from error
    pods: dict[str, list[_Status]] = {}
    for item in items:
        if item.kind == "Pod":
            pods.setdefault(item.metadata.labels.get(NAME_LABEL, ""), []).append(item.status)
    jobs = [(item.metadata.labels.get(NAME_LABEL, ""), item.status) for item in items if item.kind == "Job"]
    return tuple(_job(name, status, pods.get(name, [])) for name, status in jobs)


def _job(name: str, status: _Status, pods: list[_Status]) -> BatchJob:
    true = {condition.type: condition for condition in status.conditions if condition.status == "True"}
    for kind in ("Failed", "Complete"):
        if kind in true:
            said = true[kind].message or true[kind].reason
            why = "; ".join([*([said] if said else []), *_failures(pods)])
            return BatchJob(name, name, BatchState.ENDED, f"{kind} ({why})" if why else kind)
    if "Suspended" in true:
        return BatchJob(name, name, BatchState.HELD, "Suspended")
    if any(pod.phase == "Running" for pod in pods):
        return BatchJob(name, name, BatchState.RUNNING)
    reason, hopeless = "it has no pod yet", False
    for pod in pods:
        for condition in pod.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                reason = f"{condition.reason}: {condition.message}"
        for waiting in (container.state.waiting for container in pod.containers):
            if waiting is not None:
                reason = f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
                hopeless = hopeless or waiting.reason in _HOPELESS
    return BatchJob(name, name, BatchState.QUEUED, reason, is_hopeless=hopeless)


def _failures(pods: list[_Status]) -> list[str]:
    """Return how pods failed: they were evicted, were too long, or how their programs ended."""
    found = []
    for pod in pods:
        ends = [container.state.terminated for container in pod.containers]
        failed = [end for end in ends if end is not None and end.exit_code]
        if pod.reason:
            found.append(f"a pod: {pod.reason}")
        elif failed:
            found.append(f"a pod: {failed[0].reason or 'Error'}, exit code {failed[0].exit_code}")
    return sorted(set(found))
