"""PBS: ``qsub``, ``pbsdsh``, ``qselect``, ``qstat``, ``qdel`` of OpenPBS and Torque, and of Slurm."""

from __future__ import annotations

import re

from gspc_trio.components.provision.batch import (
    BadRequest,
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

_UNCLEAR = re.compile(r"connect|communication|time[d ]*out|end of file|premature|protocol", re.IGNORECASE)
"""A submission that failed so may have been taken all the same."""

_REFUSED_FOR_GOOD = re.compile(
    r"unknown queue|(no|invalid|unknown) (partition|queue) |invalid (partition|account)|illegal attribute|"
    r"unknown resource|(invalid|illegal|unrecognized|unknown) option|requires an argument",
    re.IGNORECASE,
)
"""A submission that failed so will always fail, as long as the batch system is what it is."""

_NO_SUCH_JOB_STATUS = 153
"""Exit status of ``qstat`` when it knows no such job: the last byte of PBSE_UNKJOBID."""

_NO_SUCH_JOB = ("unknown job id", "invalid job id", "job has finished")

_JOB_ID = re.compile(r"\d+(\[\])?(\.[\w.-]+)?")
_JOB = re.compile(r"^Job Id:\s*(\S+)", re.MULTILINE)
_FOLDED = re.compile(r"\n\t(?=\S)(?![\w.]+ = )")
"""Where a long value goes on in the next line."""

_FIELD = re.compile(r"^\s+([\w.]+) = (.*)$", re.MULTILINE)

_WAITS, _HELD, _RUNS, _ENDED = "QTW", "HSU", "REB", "CFX"
_NEVER = "Can Never Run"
"""The comment of OpenPBS on a job which can never run as it was asked for begins so."""

# Slurm's commands for users of Torque have no qselect.
_LIST = """
if command -v qselect >/dev/null; then
    jobs=$(qselect -u "$(id -un)") || exit
    [ -z "$jobs" ] || exec qstat -f $jobs
else exec qstat -f; fi
"""
_CANCEL_NAMED = 'for job in $(qselect -u "$(id -un)" -N "$1"); do qdel "$job"; done'

_PLACES = """awk '!seen[$0]++ { print NR - 1 }' "$PBS_NODEFILE\""""
_ELSEWHERE = 'pbsdsh -n "$place" -- /bin/sh -c "$told"'


class PbsProvider(Provider):
    """PBS in its several makes."""

    name = "pbs"

    def submit(self, request: BatchRequest) -> Command:
        """See Provider."""
        if not request.cores:
            raise BadRequest("pbs gives a job the cores that it asks for: say how many of each node")
        command = ["qsub", "-N", request.name, "-j", "oe", "-o", request.output, "-r", "n"]
        # Slurm's qsub knows one -l only, and reads no script on standard input.
        wanted = f"nodes={request.nodes}:ppn={request.cores}"
        if request.time_s:
            wanted += f",walltime={clock_time(request.time_s)}"
        command += ["-l", wanted]
        if request.queue:
            command += ["-q", request.queue]
        if request.account:
            command += ["-A", request.account]
        return (*command, *request.arguments, f"{request.folder}/script")

    def submitted(self, result: CommandResult) -> str | None:
        """See Provider."""
        found = (result.output.split() or [""])[-1]
        if result.status == 0:
            return found if _JOB_ID.fullmatch(found) else None
        if _UNCLEAR.search(result.errors):
            return None
        raise refusal(f"qsub refused it: {result.words}", _REFUSED_FOR_GOOD)

    def launch(self, request: BatchRequest, command: str) -> str:
        """See Provider."""
        if request.nodes == 1:
            return on_node(command, "0", "${PBS_JOBID:-$SLURM_JOB_ID}")
        return on_all_nodes(command, "$PBS_JOBID", _PLACES, _ELSEWHERE)

    def query(self, job_id: str = "") -> Command:
        """See Provider."""
        return ("qstat", "-f", job_id) if job_id else ("/bin/sh", "-c", _LIST)

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        """See Provider."""
        parts = _JOB.split(_FOLDED.sub("", result.output))[1:]
        found = [_job(job_id, text) for job_id, text in zip(parts[::2], parts[1::2], strict=True)]
        # A job that ended between the two commands of a list is no reason to know nothing of the others.
        none = result.status == _NO_SUCH_JOB_STATUS or any(
            words in result.errors.lower() for words in _NO_SUCH_JOB
        )
        if result.status and not none:
            raise QueryFailed(result.words)
        return tuple(found)

    def cancel(self, job_id: str, name: str) -> Command:
        """See Provider."""
        return ("qdel", job_id) if job_id else ("/bin/sh", "-c", _CANCEL_NAMED, "sh", name)


def _job(job_id: str, text: str) -> BatchJob:
    fields = dict(_FIELD.findall(text))
    name, state, why = fields.get("Job_Name", ""), fields.get("job_state", ""), fields.get("comment", "")
    if state and state in _WAITS:
        return BatchJob(job_id, name, BatchState.QUEUED, why, is_hopeless=_NEVER in why)
    if state and state in _HELD:
        return BatchJob(job_id, name, BatchState.HELD, why or f"hold {fields.get('Hold_Types', state)}")
    if state and state in _RUNS:
        return BatchJob(job_id, name, BatchState.RUNNING)
    if state and state in _ENDED:
        status = fields.get("exit_status", fields.get("Exit_status", ""))
        return BatchJob(job_id, name, BatchState.ENDED, f"exit status {status}" if status else why)
    return BatchJob(job_id, name, BatchState.UNKNOWN, state)
