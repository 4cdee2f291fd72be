"""``slurm-mixed``: servers are batch jobs of Slurm, clients are steps of the launcher's allocation."""

from __future__ import annotations

from gspc_trio.components.launcher.adapter import JobStart
from gspc_trio.components.launcher.adapters.slurm import SlurmAdapter
from gspc_trio.components.launcher.adapters.slurm_srun import steps
from gspc_trio.components.launcher.study_job import StudyJob


class SlurmMixedAdapter(SlurmAdapter):
    """Servers by ``sbatch``, clients by ``srun`` where the launcher is."""

    name = "slurm-mixed"
    programs: tuple[str, ...] = (*SlurmAdapter.programs, "srun")

    def start(self, job: StudyJob) -> JobStart:
        """See Adapter."""
        return self.submission(job) if job.is_server else steps(job)
