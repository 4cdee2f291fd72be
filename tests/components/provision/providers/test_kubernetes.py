"""Commands for Kubernetes, and what ``kubectl`` of version 1.29 and newer would say."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    BatchState,
    CommandResult,
    QueryFailed,
)
from gspc_trio.components.provision.providers.kubernetes import KubernetesProvider

KUBERNETES = KubernetesProvider()
IMAGE = {"image": "registry.example.org/gspc-trio:1"}
REQUEST = BatchRequest(
    "gspc-1", 4, 600, nodes=3, script="#!/bin/sh\n", secret="the secret", options=IMAGE, folder="/a"
)


def item(kind: str, **status: object) -> dict[str, object]:
    labels = {"app.kubernetes.io/managed-by": "gspc-trio", "gspc-trio/job": "gspc-1"}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "labels": labels}, "status": status}


def told(*items: Mapping[str, object]) -> tuple[BatchJob, ...]:
    return KUBERNETES.told(CommandResult(0, json.dumps({"kind": "List", "items": items}), ""))


def test_a_request_is_an_indexed_job_and_its_secret_goes_to_the_nodes_alone():
    assert KUBERNETES.submit(REQUEST) == ("kubectl", "create", "--output=name", "--filename=-")
    secret, job = json.loads(KUBERNETES.submit_input(REQUEST))["items"]
    assert secret["stringData"] == {"secret": "the secret"}
    assert "the secret" not in json.dumps(job)
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (3, 3, "Indexed")
    assert spec["backoffLimitPerIndex"] == 0
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["activeDeadlineSeconds"]) == ("Never", 600)
    container = pod["containers"][0]
    assert container["image"] == IMAGE["image"]
    assert container["resources"]["requests"] == {"cpu": "4"}
    assert container["command"] == ["/bin/sh", "-c", "#!/bin/sh\n"]
    mounted = container["volumeMounts"][0]["mountPath"]
    assert f"{mounted}/secret" == KUBERNETES.secret_path
    assert '"$JOB_COMPLETION_INDEX"' in KUBERNETES.launch(REQUEST, "echo x")


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (BatchRequest("one", 1), "needs an image that has gspc-trio: --set image=NAME"),
        (BatchRequest("one", options=IMAGE), "say how many"),
        (BatchRequest("one", 1, options=IMAGE, queue="x"), "no queues, no accounts, and no arguments"),
    ],
)
def test_what_kubernetes_cannot_be_asked_for_is_refused(request_: BatchRequest, why: str):
    with pytest.raises(BadRequest, match=why):
        KUBERNETES.submit(request_)


def test_a_submission_has_an_id_or_is_unclear_or_refused():
    assert KUBERNETES.submitted(CommandResult(0, "secret/gspc-1\njob.batch/gspc-1\n", "")) == "gspc-1"
    for errors in (
        "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?",
        "Unable to connect to the server: net/http: TLS handshake timeout",
        "Error from server: etcdserver: request timed out",
    ):
        assert KUBERNETES.submitted(CommandResult(1, "", errors)) is None
        with pytest.raises(QueryFailed):
            KUBERNETES.checked(CommandResult(1, "", errors))
    quota = 'Error from server (Forbidden): jobs.batch "gspc-1" is forbidden: exceeded quota: q'
    with pytest.raises(BadRequest, match=r"kubectl refused it: .* exceeded quota"):
        KUBERNETES.submitted(CommandResult(1, "secret/gspc-1\n", quota))
    assert KUBERNETES.checked(CommandResult(1, "", quota)) == quota
    assert KUBERNETES.checked(CommandResult(0, "", "")) == ""
    assert KUBERNETES.check(REQUEST)[-1] == "--dry-run=server"


def test_a_job_is_where_its_pods_are():
    assert told(item("Job")) == (BatchJob("gspc-1", "gspc-1", BatchState.QUEUED, "it has no pod yet"),)
    full = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient cpu.",
    }
    waits = item("Pod", phase="Pending", conditions=[full])
    assert told(item("Job"), waits)[0].reason == f"Unschedulable: {full['message']}"
    image = {"waiting": {"reason": "InvalidImageName", "message": "couldn't parse image reference"}}
    never = item("Pod", phase="Pending", containerStatuses=[{"name": "rif", "state": image}])
    assert told(item("Job"), never)[0].is_hopeless
    runs = item("Pod", phase="Running", containerStatuses=[{"name": "rif", "state": {"running": {}}}])
    assert told(waits, runs, item("Job"))[0].state is BatchState.RUNNING


@pytest.mark.parametrize(
    ("condition", "where", "reason"),
    [
        ({"type": "Suspended", "status": "True"}, BatchState.HELD, "Suspended"),
        ({"type": "Suspended", "status": "False"}, BatchState.QUEUED, "it has no pod yet"),
        ({"type": "Complete", "status": "True"}, BatchState.ENDED, "Complete"),
        (
            {
                "type": "Failed",
                "status": "True",
                "reason": "FailedIndexes",
                "message": "Job has failed indexes",
            },
            BatchState.ENDED,
            "Failed (Job has failed indexes)",
        ),
    ],
)
def test_conditions_of_a_job_are_read(condition: Mapping[str, str], where: BatchState, reason: str):
    assert told(item("Job", conditions=[condition])) == (BatchJob("gspc-1", "gspc-1", where, reason),)


def test_a_job_that_failed_says_how_its_pods_did():
    failed = item("Job", conditions=[{"type": "Failed", "status": "True", "reason": "FailedIndexes"}])
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    pods = [
        item("Pod", phase="Failed", containerStatuses=[{"state": killed}]),
        item("Pod", phase="Failed", containerStatuses=[{"state": killed}]),
        item("Pod", phase="Failed", reason="DeadlineExceeded", containerStatuses=[{"state": killed}]),
        item("Pod", phase="Succeeded", containerStatuses=[{"state": {"terminated": {"exitCode": 0}}}]),
    ]
    assert told(failed, *pods)[0].reason == (
        "Failed (FailedIndexes; a pod: DeadlineExceeded; a pod: OOMKilled, exit code 137)"
    )


def test_an_empty_list_is_no_job_and_a_failed_query_says_nothing():
    assert told() == ()
    for result in (CommandResult(1, "", "Unable to connect to the server"), CommandResult(0, "no", "")):
        with pytest.raises(QueryFailed):
            KUBERNETES.told(result)


def test_a_job_is_asked_for_and_cancelled_by_its_name_its_secret_with_it():
    assert KUBERNETES.query()[3] == "--selector=app.kubernetes.io/managed-by=gspc-trio"
    assert KUBERNETES.query("gspc-1")[3] == "--selector=gspc-trio/job=gspc-1"
    assert KUBERNETES.cancel("", "gspc-1")[:4] == (
        *("kubectl", "delete", "jobs,secrets"),
        "--selector=gspc-trio/job=gspc-1",
    )
    assert KUBERNETES.output("gspc-1")[:2] == ("kubectl", "logs")
