"""``slurm``: servers and clients are batch jobs of Slurm, which ``srun`` starts in their allocation."""

from __future__ import annotations

from gspc_trio.components.launcher.adapter import Adapter, IndirectStart, JobStart
from gspc_trio.components.launcher.group import job_script
from gspc_trio.components.launcher.script import Starter
from gspc_trio.components.launcher.study_job import StudyJob
from gspc_trio.components.provision.batch import BatchRequest, Command, Provider
from gspc_trio.components.provision.providers.slurm import SlurmProvider

BATCH_ID = "$SLURM_JOB_ID"

_OUTSIDE = """
for name in $(env | sed -n 's/^\\(SLURM_[A-Z0-9_]*\\)=.*/\\1/p'); do
    [ "$name" = SLURM_CONF ] || unset "$name"
done
exec "$@"
"""
"""In a job of Slurm, which the launcher may run in, variables say how large that is: not for the new one."""

STEP = ("--ntasks=1", "--exact")
"""What ``srun`` is told so that steps share an allocation: each has the cores of its own tasks alone."""


def step_arguments(given: Command) -> Command:
    """Return the arguments of ``srun`` for one step of several in an allocation; those given win."""
    says_nodes = any(one.startswith(("-N", "--nodes", "-n", "--ntasks")) for one in given)
    return (*(() if says_nodes else ("--nodes=1",)), *STEP, *given)


class SlurmAdapter(Adapter):
    """Batch jobs of Slurm; a group has a step for each client."""

    name = "slurm"
    programs: tuple[str, ...] = ("sbatch", "squeue", "scancel")

    def __init__(self) -> None:
        self.provider: Provider | None = SlurmProvider()

    def start(self, job: StudyJob) -> JobStart:
        """See Adapter."""
        return self.submission(job)

    def submission(self, job: StudyJob) -> IndirectStart:
        """Return how to submit a job."""
        script, files = self.script(job)
        output, errors = (path.replace("%", "%%") for path in (job.output, job.errors))
        size = len(job.processes)
        tasks = (f"--ntasks={size}",) if size > 1 else ()
        arguments = (f"--error={errors}", *tasks, *job.arguments)
        request = BatchRequest(job.name, nodes=0, arguments=arguments, output=output, script=script)
        assert self.provider is not None
        command, stdin = self.provider.submit(request), self.provider.submit_input(request)
        outside = ("/bin/sh", "-c", _OUTSIDE.strip(), "sh")
        return IndirectStart((*outside, *command), stdin, {**files, job.file("sbatch", "sh"): script})

    def script(self, job: StudyJob) -> tuple[str, dict[str, str]]:
        """Return the script of a job, and the files that it needs: path -> content."""
        program, *arguments = job.starter(("srun",))
        is_srun = program == "srun"
        if is_srun and len(job.processes) > 1:
            arguments = list(step_arguments(tuple(arguments)))
        return job_script(job, BATCH_ID, Starter((program, *arguments), is_srun))
