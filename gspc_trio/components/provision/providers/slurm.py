"""Slurm: ``sbatch``, ``srun``, ``squeue``, ``scancel`` (seen with 22.05)."""

from __future__ import annotations

import re
import shlex

from gspc_trio.components.provision.batch import (
    BatchJob,
    BatchRequest,
    BatchState,
    Command,
    CommandResult,
    Provider,
    QueryFailed,
    on_node,
    refusal,
    time_units,
)

FORMAT = "%i|%T|%j|%r"
"""Of a line about a job: its id, state, name, and why it waits; the last may contain anything."""

_UNCLEAR = re.compile(
    r"timed out|unable to contact|connect|communication|zero bytes|i/o error|not responding|standby",
    re.IGNORECASE,
)
"""A submission that failed so may have been taken all the same."""

_REFUSED_FOR_GOOD = re.compile(
    r"invalid (partition|account|qos|wckey|feature|generic resource|generic trackable|constraint)|"
    r"(unrecognized|invalid|ambiguous) (option|time limit)|option .* requires an argument|"
    r"node configuration is not available|time limit is invalid|node count specification invalid",
    re.IGNORECASE,
)
"""A submission that failed so will always fail, as long as the cluster is what it is."""

_NO_SUCH_JOB = "Invalid job id"

_WAITS = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED"}
_HELD = {"SUSPENDED", "SPECIAL_EXIT", "REQUEUE_HOLD", "STOPPED"}
_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
}
_RUNS = {"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT"}
_HOLDS = ("JobHeldUser", "JobHeldAdmin", "launch_failed_requeued_held", "job_requeued_in_held_state")
"""A job that waits for one of these is held."""
_HOPELESS = {
    "BadConstraints",
    "DependencyNeverSatisfied",
    "PartitionConfig",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
}
"""What a job waits for in vain: as it was asked for, it can never run."""


class SlurmProvider(Provider):
    """Slurm."""

    name = "slurm"
    time_unit_s = 60
    restart_variable = "SLURM_RESTART_COUNT"

    def submit(self, request: BatchRequest) -> Command:
        """See Provider."""
        command = ["sbatch", "--parsable", f"--job-name={request.name}", f"--output={request.output}"]
        # A job of several nodes goes on when it loses one.
        command += ["--no-requeue", *(["--no-kill"] if request.nodes > 1 else [])]
        if request.nodes:
            command += [f"--nodes={request.nodes}", f"--ntasks={request.nodes}"]
            command += [f"--cpus-per-task={request.cores}"] if request.cores else ["--exclusive"]
        if request.time_s:
            command.append(f"--time={time_units(request, self.time_unit_s)}")
        if request.queue:
            command.append(f"--partition={request.queue}")
        if request.account:
            command.append(f"--account={request.account}")
        return (*command, *request.arguments)

    def check(self, request: BatchRequest) -> Command:
        """See Provider."""
        return (*self.submit(request), "--test-only")

    def checked(self, result: CommandResult) -> str:
        """See Provider."""
        if result.status and _UNCLEAR.search(result.errors):
            raise QueryFailed(result.words)
        return result.words if result.status else ""

    def launch(self, request: BatchRequest, command: str) -> str:
        """See Provider."""
        started = on_node(command, "$SLURM_NODEID", "$SLURM_JOB_ID", "${SLURM_RESTART_COUNT:-0}")
        if request.nodes == 1:
            return started
        cores = f" --cpus-per-task={request.cores}" if request.cores else ""
        return (
            f"srun --nodes={request.nodes} --ntasks={request.nodes} --ntasks-per-node=1{cores} --no-kill "
            f"--kill-on-bad-exit=0 --wait=0 --mpi=none /bin/sh -c {shlex.quote(started)}"
        )

    def submitted(self, result: CommandResult) -> str | None:
        """See Provider."""
        # With several clusters it is "id;cluster".
        lines = result.output.split()
        found = lines[-1].split(";")[0] if lines else ""
        if result.status == 0:
            return found if found.isdigit() else None
        if _UNCLEAR.search(result.errors):
            return None
        raise refusal(f"sbatch refused it: {result.words}", _REFUSED_FOR_GOOD)

    def query(self, job_id: str = "") -> Command:
        """See Provider."""
        whose = f"--jobs={job_id}" if job_id else "--me"
        return ("squeue", "--noheader", "--states=all", f"--format={FORMAT}", whose)

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        """See Provider."""
        if result.status:
            if _NO_SUCH_JOB in result.errors:
                return ()
            raise QueryFailed(result.words)
        found = []
        for line in result.output.splitlines():
            parts = line.strip().split("|", 3)
            if len(parts) == 4:
                found.append(_job(*parts))
        return tuple(found)

    def cancel(self, job_id: str, name: str) -> Command:
        """See Provider."""
        return ("scancel", job_id) if job_id else ("scancel", "--me", f"--name={name}")


def _job(job_id: str, state: str, name: str, reason: str) -> BatchJob:
    if state in _WAITS:
        held = reason.startswith(_HOLDS)
        where = BatchState.HELD if held else BatchState.QUEUED
        return BatchJob(job_id, name, where, reason, is_hopeless=reason in _HOPELESS)
    if state in _HELD:
        return BatchJob(job_id, name, BatchState.HELD, state)
    if state in _RUNS:
        return BatchJob(job_id, name, BatchState.RUNNING)
    why = state if reason in ("None", "") else f"{state} ({reason})"
    if state in _ENDED:
        return BatchJob(job_id, name, BatchState.ENDED, why)
    return BatchJob(job_id, name, BatchState.LOST if state == "NODE_FAIL" else BatchState.UNKNOWN, why)
