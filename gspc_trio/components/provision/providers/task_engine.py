"""Running clusters of Dask and Ray: jobs are tasks there, one on each of several hosts.

Their libraries are not imported here. A program of ours, which does so, submits, lists and cancels.
"""

from __future__ import annotations

import re
import sys

import msgspec

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    BatchState,
    Command,
    CommandResult,
    Provider,
    QueryFailed,
)

REFUSED = 3
"""Exit status of the program when there is no job for certain: it says why."""

_PYTHON = (sys.executable, "-P", "-m")

_ADDRESS = re.compile(r"[a-z]+://\S+|[A-Za-z0-9_.\[\]:-]+:[0-9]+|")


class EngineRequest(msgspec.Struct):
    """What the program reads on standard input, and each node: a job to submit.

    Attributes:
        name: of the job.
        nodes: on how many hosts it runs.
        cores: of each of them.
        script: of ``/bin/sh``, which reads the secret on standard input.
        secret: with which its RIFs enrol.
    """

    name: str
    nodes: int
    cores: int
    script: str
    secret: str


class EngineJob(msgspec.Struct):
    """A job, as the program lists it, one line of JSON each."""

    name: str
    state: BatchState
    reason: str = ""


class EngineSize(msgspec.Struct):
    """How large a cluster is: hosts that may have a RIF, and the cores that each of them has at least."""

    nodes: int
    cores: int


class TaskEngineProvider(Provider):
    """A running cluster; ``helper`` is a program of ours."""

    secret_path = "/dev/stdin"
    options: tuple[str, ...] = ("address",)

    def _command(self, verb: str, *names: str) -> Command:
        if not self.address:
            raise BadRequest(f"{self.name} needs the address of its cluster, such as {self.name}://HOST:PORT")
        if not _ADDRESS.fullmatch(self.address):
            raise BadRequest(
                f"{self.name} has no address {self.address!r}: write for example {self.name}://HOST:PORT"
            )
        return (*self.helper, verb, self.address, *names)

    def submit(self, request: BatchRequest) -> Command:
        """See Provider."""
        if request.queue or request.account or request.arguments:
            raise BadRequest(f"{self.name} has no queues, no accounts, and no arguments")
        return self._command("submit")

    def submit_input(self, request: BatchRequest) -> str:
        """See Provider."""
        told = EngineRequest(request.name, request.nodes, request.cores, request.script, request.secret)
        return msgspec.json.encode(told).decode()

    def submitted(self, result: CommandResult) -> str | None:
        """See Provider."""
        if result.status == REFUSED:
            raise BadRequest(f"{self.name}: {result.words}")
        return result.output.strip() or None if result.status == 0 else None

    def launch(self, request: BatchRequest, command: str) -> str:
        """See Provider; the program starts it once on each node, and sets the variables."""
        del request
        return command

    def query(self, job_id: str = "") -> Command:
        """See Provider."""
        return self._command("list", *([job_id] if job_id else []))

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        """See Provider."""
        if result.status:
            raise QueryFailed(result.words)
        try:
            found = [msgspec.json.decode(line, type=EngineJob) for line in result.output.splitlines()]
        except msgspec.MsgspecError as error:
            raise QueryFailed(f"{self.name} says what cannot be read: {error}") from error
        return tuple(BatchJob(job.name, job.name, job.state, job.reason) for job in found)

    def cancel(self, job_id: str, name: str) -> Command:
        """See Provider."""
        return self._command("cancel", job_id or name)

    def size(self) -> Command:
        """See Provider."""
        return self._command("size")

    def sized(self, result: CommandResult) -> tuple[int, int]:
        """See Provider."""
        if result.status:
            raise QueryFailed(result.words)
        try:
            found = msgspec.json.decode(result.output, type=EngineSize)
        except msgspec.MsgspecError as error:
            raise QueryFailed(f"{self.name} says what cannot be read: {error}") from error
        return found.nodes, found.cores


class DaskProvider(TaskEngineProvider):
    """A running Dask cluster: a node is a task that is pinned to a worker, one a host."""

    name = "dask"
    helper: tuple[str, ...] = (*_PYTHON, "gspc_trio.components.provision.shell.dask_jobs")


class RayProvider(TaskEngineProvider):
    """A running Ray cluster: a node is an actor in a placement group, each on another node of Ray."""

    name = "ray"
    helper: tuple[str, ...] = (*_PYTHON, "gspc_trio.components.provision.shell.ray_jobs")
