"""``openmpi``: servers and clients are started on this host by ``mpiexec``, which can use more hosts."""

from __future__ import annotations

from gspc_trio.components.launcher.adapter import Adapter, DirectStart, HostProcess
from gspc_trio.components.launcher.mpi import mpi_script
from gspc_trio.components.launcher.study_job import StudyJob
from gspc_trio.components.provision.providers.local import job_mark


class OpenMpiAdapter(Adapter):
    """Jobs that are an ``mpiexec`` of Open MPI; a group is one of it, with colons."""

    name = "openmpi"
    programs: tuple[str, ...] = ("mpiexec",)

    def start(self, job: StudyJob) -> DirectStart:
        """See Adapter."""
        script, files = mpi_script(job, "$$", job.arguments)
        ids = tuple(one.client_id for one in job.processes if one.client_id is not None)
        path = job.file("mpiexec", "sh")
        return DirectStart(
            (HostProcess(("/bin/sh", path, job_mark(job.name)), ids),), {**files, path: script}
        )
