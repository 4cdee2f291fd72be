"""Open MPI for tests: ``mpiexec`` on this host, whose process is the batch job."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from gspc_trio.components.provision.providers.mpi import MpiProvider

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def missing() -> str:
    """Return why there can be no Open MPI here, or ""."""
    if shutil.which("mpiexec") is None:
        return "there is no mpiexec: install the Debian package openmpi-bin"
    said = subprocess.run(["mpiexec", "--version"], capture_output=True, text=True, check=False).stdout
    return "" if "Open" in said else "the mpiexec here is not of Open MPI"


MARK = "GSPC_TEST_MPI"


class Mpi:
    """``mpiexec``; see ``Cluster``."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(8)
        self.environment = {**AS_ROOT, "PATH": os.environ["PATH"], MARK: self._mark}

    def jobs(self) -> list[str]:
        """Return the ids of the jobs that have not ended, without those that others have on this host."""
        listed = subprocess.run(MpiProvider().query(), capture_output=True, text=True, check=True).stdout
        lines = [line.split() for line in listed.splitlines()]
        found = [words[0] for words in lines if words[-1].startswith("gspc-job=") and words[0] == words[1]]
        return [pid for pid in found if self._is_ours(pid)]

    def _is_ours(self, pid: str) -> bool:
        try:
            return f"{MARK}={self._mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # gone meanwhile
            return False
