"""``slurm-openmpi``: batch jobs of Slurm in which ``mpirun`` of Open MPI starts servers and clients."""

from __future__ import annotations

from gspc_trio.components.launcher.adapters.slurm import BATCH_ID, SlurmAdapter
from gspc_trio.components.launcher.mpi import mpi_script
from gspc_trio.components.launcher.study_job import StudyJob


class SlurmOpenMpiAdapter(SlurmAdapter):
    """Batch jobs of Slurm; a group is one ``mpirun`` with colons."""

    name = "slurm-openmpi"

    def script(self, job: StudyJob) -> tuple[str, dict[str, str]]:
        """See SlurmAdapter."""
        return mpi_script(job, BATCH_ID, redirect=False)
