"""A node of a job of Dask or Ray: a process that starts a RIF and ends it when its task is over.

The task holds the standard input of this process. When that is closed, also because the worker of Dask or Ray
was killed, all that was started here is ended. Ray kills this process, too:
then the kernel tells the RIF.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial

import msgspec

from gspc_trio.components.provision.batch import BATCH_ID_VARIABLE, NODE_VARIABLE, RESTARTS_VARIABLE
from gspc_trio.components.provision.providers.task_engine import EngineRequest
from gspc_trio.compute.system import set_parent_death_signal

GRACE_S = 5.0
"""How long a RIF may take to end."""


def main() -> int:
    """Run the script of a node until it ends, or standard input is closed."""
    told = msgspec.json.decode(sys.stdin.buffer.readline(), type=EngineRequest)
    place = {NODE_VARIABLE: sys.argv[1], BATCH_ID_VARIABLE: told.name, RESTARTS_VARIABLE: "0"}
    rif = subprocess.Popen(
        ("/bin/sh", "-c", told.script),
        stdin=subprocess.PIPE,
        env={**os.environ, **place},
        start_new_session=True,
        preexec_fn=partial(set_parent_death_signal, signal.SIGTERM),
    )
    assert rif.stdin is not None
    with suppress(BrokenPipeError), rif.stdin:
        rif.stdin.write(told.secret.encode())
    threading.Thread(target=_end_with_task, args=(rif,), daemon=True).start()
    status = rif.wait()
    with suppress(ProcessLookupError):
        os.killpg(rif.pid, signal.SIGKILL)
    return status if status >= 0 else 128 - status


def _end_with_task(rif: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):  # without the lock of a stream, so that this process can end meanwhile
        pass
    with suppress(ProcessLookupError):
        os.killpg(rif.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        rif.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(rif.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
