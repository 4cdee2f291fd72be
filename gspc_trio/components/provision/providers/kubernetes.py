"""Kubernetes: a Job of which each pod is a node, by ``kubectl``; it needs Kubernetes 1.29 or newer."""

from __future__ import annotations

import re

import msgspec

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    Command,
    CommandResult,
    Provider,
    QueryFailed,
    on_node,
    refusal,
)
from gspc_trio.components.provision.providers.kubernetes_status import NAME_LABEL, read_jobs

_OURS = {"app.kubernetes.io/managed-by": "gspc-trio"}
_FOLDER, _FILE = "/run/gspc-trio", "secret"

_UNCLEAR = re.compile(
    r"unable to connect|connection|refused - did you|time[d ]*out|timeout|deadline exceeded|EOF|"
    r"ServiceUnavailable|InternalError|TooManyRequests",
)
"""A submission that failed so may have been taken all the same."""

_REFUSED_FOR_GOOD = re.compile(
    r'namespaces "\S+" not found|is invalid:|unknown (flag|shorthand|command)|no matches for kind',
    re.IGNORECASE,
)
"""A submission that failed so will always fail, as long as the batch system is what it is."""

_KEPT_S = 3600
"""How long a Job is known after its end, seconds."""


class KubernetesProvider(Provider):
    """Kubernetes; the namespace and the cluster are those of the user's configuration of ``kubectl``."""

    name = "kubernetes"
    secret_path = f"{_FOLDER}/{_FILE}"
    options: tuple[str, ...] = ("image",)

    def submit(self, request: BatchRequest) -> Command:
        """See Provider."""
        if not request.options.get("image"):
            raise BadRequest("kubernetes needs an image that has gspc-trio: --set image=NAME")
        if not request.cores:
            raise BadRequest("kubernetes gives a pod the cores that it asks for: say how many")
        if request.queue or request.account or request.arguments:
            raise BadRequest("kubernetes has no queues, no accounts, and no arguments")
        return ("kubectl", "create", "--output=name", "--filename=-")

    def submit_input(self, request: BatchRequest) -> str:
        """See Provider."""
        about = {"name": request.name, "labels": {**_OURS, NAME_LABEL: request.name}}
        content = {_FILE: request.secret}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": content}
        wanted = {"cpu": str(request.cores)}
        container = {
            "name": "rif",
            "image": request.options["image"],
            "command": ["/bin/sh", "-c", request.script],
            "resources": {"requests": wanted, "limits": wanted},
            "volumeMounts": [{"name": _FILE, "mountPath": _FOLDER, "readOnly": True}],
        }
        pod: dict[str, object] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": _FILE, "secret": {"secretName": request.name}}],
        }
        if request.time_s:  # of the pod, so that it is not over while the job waits
            pod["activeDeadlineSeconds"] = request.time_s
        spec = {
            "completions": request.nodes,
            "parallelism": request.nodes,
            "completionMode": "Indexed",
            "backoffLimitPerIndex": 0,  # no pod is started again, and none that fails ends another
            "ttlSecondsAfterFinished": _KEPT_S,
            "template": {"metadata": {"labels": about["labels"]}, "spec": pod},
        }
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec}
        whole = {"apiVersion": "v1", "kind": "List", "items": [secret, job]}
        return msgspec.json.encode(whole).decode()

    def submitted(self, result: CommandResult) -> str | None:
        """See Provider."""
        found = [line[len("job.batch/") :] for line in result.output.split() if line.startswith("job.batch/")]
        if found or result.status == 0:
            return found[0] if found else None
        if _UNCLEAR.search(result.errors):
            return None
        raise refusal(f"kubectl refused it: {result.words}", _REFUSED_FOR_GOOD)

    def check(self, request: BatchRequest) -> Command:
        """See Provider."""
        return (*self.submit(request), "--dry-run=server")

    def checked(self, result: CommandResult) -> str:
        """See Provider."""
        if result.status and _UNCLEAR.search(result.errors):
            raise QueryFailed(result.words)
        return result.words if result.status else ""

    def launch(self, request: BatchRequest, command: str) -> str:
        """See Provider."""
        return on_node(command, "$JOB_COMPLETION_INDEX", request.name)

    def query(self, job_id: str = "") -> Command:
        """See Provider."""
        which = f"{NAME_LABEL}={job_id}" if job_id else "{}={}".format(*next(iter(_OURS.items())))
        return ("kubectl", "get", "jobs,pods", f"--selector={which}", "--output=json")

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        """See Provider."""
        if result.status:
            raise QueryFailed(result.words)
        return read_jobs(result.output)

    def cancel(self, job_id: str, name: str) -> Command:
        """See Provider; the secret goes, too."""
        return (
            "kubectl",
            "delete",
            "jobs,secrets",
            f"--selector={NAME_LABEL}={job_id or name}",
            "--wait=false",
        )

    def output(self, name: str) -> Command:
        """See Provider."""
        return ("kubectl", "logs", f"--selector={NAME_LABEL}={name}", "--prefix", "--tail=50")
