"""Open MPI: an ``mpiexec`` as a batch job, each of its ranks a node (seen with 4.1.4).

The job is a process of this host, as those of ``local``. Where the ranks run is said by arguments for
``mpiexec``, such as ``--hostfile hosts --map-by ppr:1:node``.
"""

from __future__ import annotations

import shlex

from gspc_trio.components.provision.batch import BATCH_ID_VARIABLE, BatchRequest, on_node
from gspc_trio.components.provision.providers.local import LocalProvider

_USUAL = ("--enable-recovery", "--mca", "orte_abort_on_non_zero_status", "0", "--bind-to", "none")
"""A rank that ends, or is killed, ends no other; each may use all cores of its host."""


class MpiProvider(LocalProvider):
    """``mpiexec`` of Open MPI."""

    name = "mpi"
    is_here = False

    def _check_arguments(self, request: BatchRequest) -> None:
        del request  # all of them are for mpiexec

    def launch(self, request: BatchRequest, command: str) -> str:
        """See Provider."""
        started = on_node(command, "$OMPI_COMM_WORLD_RANK", f"${BATCH_ID_VARIABLE}")
        line = ("mpiexec", "-n", str(request.nodes), *_USUAL, "-x", BATCH_ID_VARIABLE, *request.arguments)
        return f"export {BATCH_ID_VARIABLE}=$PPID\n{shlex.join([*line, '/bin/sh', '-c', started])}"
