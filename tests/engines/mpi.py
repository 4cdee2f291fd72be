"""Open MPI for tests: ``mpiexec`` on this host, whose process is the batch job."""

from __future__ import annotations

import os
import shutil
import subprocess

from gspc_trio.components.provision.providers.mpi import MpiProvider


def missing() -> str:
    """Return why there can be no Open MPI here, or ""."""
    if shutil.which("mpiexec") is None:
        return "there is no mpiexec: install the Debian package openmpi-bin"
    said = subprocess.run(["mpiexec", "--version"], capture_output=True, text=True, check=False).stdout
    return "" if "Open" in said else "the mpiexec here is not of Open MPI"


class Mpi:
    """``mpiexec``; see ``Cluster``."""

    def __init__(self) -> None:
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.environment = {**allowed, "PATH": os.environ["PATH"]}

    def jobs(self) -> list[str]:
        """Return the ids of the jobs that have not ended, those of other users of this host among them."""
        listed = subprocess.run(MpiProvider().query(), capture_output=True, text=True, check=True).stdout
        lines = [line.split() for line in listed.splitlines()]
        return [words[0] for words in lines if words[-1].startswith("gspc-job=") and words[0] == words[1]]
