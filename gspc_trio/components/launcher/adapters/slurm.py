"""``slurm``: servers and clients are batch jobs of Slurm, which ``srun`` starts in their allocation."""

from __future__ import annotations

from gspc_trio.components.launcher.adapter import Adapter, IndirectStart
from gspc_trio.components.launcher.script import process_script
from gspc_trio.components.launcher.study_job import StudyJob
from gspc_trio.components.provision.batch import BatchRequest, Provider
from gspc_trio.components.provision.providers.slurm import SlurmProvider


class SlurmAdapter(Adapter):
    """Batch jobs of Slurm."""

    name = "slurm"
    programs = ("sbatch", "squeue", "scancel")

    def __init__(self) -> None:
        self.provider: Provider = SlurmProvider()

    def start(self, job: StudyJob) -> IndirectStart:
        """See Adapter."""
        script = process_script(
            job, job.processes[0], "$SLURM_JOB_ID", job.starter(("srun",)), redirect=False
        )
        output, errors = (path.replace("%", "%%") for path in (job.output, job.errors))
        arguments = (f"--error={errors}", *job.arguments)
        request = BatchRequest(job.name, nodes=0, arguments=arguments, output=output, script=script)
        files = {job.file("sbatch", "sh"): script}
        return IndirectStart(self.provider.submit(request), self.provider.submit_input(request), files)
