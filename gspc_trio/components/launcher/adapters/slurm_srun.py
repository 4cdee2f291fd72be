"""``slurm-srun``: servers and clients are steps of the allocation of Slurm in which the launcher runs."""

from __future__ import annotations

from gspc_trio.components.launcher.adapter import Adapter, DirectStart, HostProcess
from gspc_trio.components.launcher.adapters.slurm import step_arguments
from gspc_trio.components.launcher.script import Starter, process_script
from gspc_trio.components.launcher.study_job import StudyJob
from gspc_trio.components.provision.providers.local import job_mark

_END_STEP = """
squeue --steps --noheader --format='%i %j' ${SLURM_JOB_ID:+--jobs="$SLURM_JOB_ID"} |
    while read -r step name; do
        [ "$name" != "$1" ] || scancel --signal=KILL "$step"
    done
[ "$SLURM_JOB_ID" ] || scancel --quiet --name="$1"
"""
"""The step of an ``srun`` that was killed goes on; without an allocation it has a job of this name."""


def steps(job: StudyJob) -> DirectStart:
    """Return how to start a job as steps, one for each of its processes, which ``srun`` here waits for.

    A step waits for free cores of the allocation, and is told as running meanwhile.
    """
    program, *arguments = job.starter(("srun",))
    is_srun = program == "srun"
    if is_srun:
        arguments = list(step_arguments((*job.arguments, *arguments)))
    processes, files = [], {}
    for one in job.processes:
        name = job.name if one.client_id is None else f"{job.name}.{one.client_id}"
        named = [f"--job-name={name}"] if is_srun else []
        starter = Starter((program, *named, *arguments), is_srun)
        files[one.script] = process_script(job, one, "$$", starter)
        ids = () if one.client_id is None else (one.client_id,)
        end_rest = ("/bin/sh", "-c", _END_STEP, "sh", name) if is_srun else ()
        processes.append(HostProcess(("/bin/sh", one.script, job_mark(job.name)), ids, end_rest))
    return DirectStart(tuple(processes), files)


class SlurmSrunAdapter(Adapter):
    """Steps of one allocation; a group has a step for each client."""

    name = "slurm-srun"
    programs: tuple[str, ...] = ("srun",)

    def start(self, job: StudyJob) -> DirectStart:
        """See Adapter."""
        return steps(job)
