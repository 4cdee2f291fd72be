"""OAR: ``oarsub``, ``oarsh``, ``oarstat``, ``oardel`` (seen with 2.5.9)."""

from __future__ import annotations

import re
import shlex

import msgspec

from gspc_trio.components.provision.batch import (
    BatchJob,
    BatchRequest,
    BatchState,
    Command,
    CommandResult,
    Provider,
    QueryFailed,
    clock_time,
    on_all_nodes,
    on_node,
    refusal,
)

_JOB_ID = re.compile(r"^OAR_JOB_ID=(\d+)$", re.MULTILINE)

_UNCLEAR = re.compile(r"cannot connect|could not connect|connection|timed? ?out|executor", re.IGNORECASE)
"""A submission that failed so may have been taken: without its server OAR says that the job is killed, and
the job waits until the server is back."""

_REFUSED_FOR_GOOD = re.compile(
    r"unknown option|unknown queue|queue \S+ does not exist|requires an argument|bad resource request",
    re.IGNORECASE,
)
"""A submission that failed so will always fail, as long as the batch system is what it is."""

_WAITS = {"Waiting", "toAckReservation", "toLaunch", "Launching"}
_HELD = {"Hold", "Suspended"}
_RUNS = {"Running", "Resuming", "Finishing", "toError"}
_ENDED = {"Terminated", "Error"}

_PLACES = """awk '!seen[$0]++' "$OAR_NODE_FILE\""""
_ELSEWHERE = r"""printf '%s\n' "$told" | oarsh "$place" /bin/sh -s"""
"""No other shell of the user sees the command, whichever shell that is."""


class _Event(msgspec.Struct):
    description: str = ""


class _Job(msgspec.Struct):
    """What ``oarstat`` says of a job, as far as it is of use."""

    state: str
    job_id: int | str = msgspec.field(name="Job_Id")
    name: str | None = None
    message: str | None = None
    exit_code: int | str | None = None
    events: list[_Event] = []


class OarProvider(Provider):
    """OAR; a core is what OAR calls a resource."""

    name = "oar"

    def submit(self, request: BatchRequest) -> Command:
        """See Provider."""
        command = ["oarsub", "-n", request.name]
        if request.nodes:
            wanted = f"/nodes={request.nodes}" + (f"/resource_id={request.cores}" if request.cores else "")
            if request.time_s:
                wanted += f",walltime={clock_time(request.time_s)}"
            command += ["-l", wanted]
        command += ["-O", request.output, "-E", request.errors or request.output]
        if request.queue:
            command += ["-q", request.queue]
        if request.account:
            command.append(f"--project={request.account}")
        return (*command, *request.arguments, f"/bin/sh {shlex.quote(request.script_path)}")

    def submitted(self, result: CommandResult) -> str | None:
        """See Provider."""
        found = _JOB_ID.search(result.output)
        if result.status == 0 or _UNCLEAR.search(result.errors):
            return found[1] if found and result.status == 0 else None
        raise refusal(f"oarsub refused it: {result.words}", _REFUSED_FOR_GOOD)

    def launch(self, request: BatchRequest, command: str) -> str:
        """See Provider."""
        if request.nodes == 1:
            return on_node(command, "0", "$OAR_JOB_ID")
        return on_all_nodes(command, "$OAR_JOB_ID", _PLACES, _ELSEWHERE)

    def query(self, job_id: str = "") -> Command:
        """See Provider."""
        return ("oarstat", "-j", job_id, "-f", "-J") if job_id else ("oarstat", "-u", "-J")

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        """See Provider."""
        if result.status:
            raise QueryFailed(result.words)
        if not result.output.strip():
            return ()
        try:
            jobs = msgspec.json.decode(result.output, type=dict[str, _Job])
        except msgspec.MsgspecError as error:
            raise QueryFailed(f"oarstat says what cannot be read: {error}") from error
        return tuple(_batch_job(job) for job in jobs.values())

    def cancel(self, job_id: str, name: str) -> Command:
        """See Provider."""
        return ("oardel", job_id) if job_id else ("oardel", "--sql", f"job_name = '{name}'")


def _batch_job(job: _Job) -> BatchJob:
    job_id, name, why = str(job.job_id), job.name or "", job.message or job.state
    if job.state in _WAITS:
        return BatchJob(job_id, name, BatchState.QUEUED, why)
    if job.state in _HELD:
        return BatchJob(job_id, name, BatchState.HELD, job.state)
    if job.state in _RUNS:
        return BatchJob(job_id, name, BatchState.RUNNING)
    if job.state in _ENDED:
        last = job.events[-1].description if job.events else ""
        more = last or ("" if job.exit_code is None else f"exit code {job.exit_code}")
        return BatchJob(job_id, name, BatchState.ENDED, f"{job.state} ({more})" if more else job.state)
    return BatchJob(job_id, name, BatchState.UNKNOWN, job.state)
