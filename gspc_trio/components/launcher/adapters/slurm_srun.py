"""``slurm-srun``: servers and clients are steps of the allocation of Slurm in which the launcher runs."""

from __future__ import annotations

from gspc_trio.components.launcher.adapter import Adapter, DirectStart, HostProcess
from gspc_trio.components.launcher.adapters.slurm import step_arguments
from gspc_trio.components.launcher.script import Starter, process_script
from gspc_trio.components.launcher.study_job import StudyJob
from gspc_trio.components.provision.providers.local import job_mark


def steps(job: StudyJob) -> DirectStart:
    """Return how to start a job as steps, one for each of its processes, which ``srun`` here waits for.

    A step waits for free cores of the allocation, and is told as running meanwhile.
    """
    program, *arguments = job.starter(("srun",))
    is_srun = program == "srun"
    if is_srun:
        arguments = [f"--job-name={job.name}", *step_arguments((*job.arguments, *arguments))]
    starter = Starter((program, *arguments), is_srun)
    return DirectStart(
        tuple(
            HostProcess(
                ("/bin/sh", one.script, job_mark(job.name)), () if one.client_id is None else (one.client_id,)
            )
            for one in job.processes
        ),
        {one.script: process_script(job, one, "$$", starter) for one in job.processes},
    )


class SlurmSrunAdapter(Adapter):
    """Steps of one allocation; a group has a step for each client."""

    name = "slurm-srun"
    programs = ("srun",)

    def start(self, job: StudyJob) -> DirectStart:
        """See Adapter."""
        return steps(job)
