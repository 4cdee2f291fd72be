"""This project as a peer of a harness that measures task runtimes side by side.

The harness loads this file by its name; a module ``bench_peers`` with the class ``Peer`` is there then.
``gspc`` is an executor with an embedded run-time system, ``gspc-remote`` one that joins a run-time system and
a RIF in processes of their own, over websockets.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

try:
    from bench_peers import Peer
except ImportError:  # looked at without the harness
    Peer = object

ROOT = Path(__file__).parents[1]
PYTHON = str(ROOT / ".venv" / "bin" / "python")
CORES = 2
DATA_BYTES = 1 << 30

if "--child" not in sys.argv:  # before anything is timed, as all peers are when they are installed
    subprocess.run([PYTHON, "-m", "compileall", "-q", str(ROOT / "gspc_trio")], check=False)


class Gspc(Peer):
    """Embedded."""

    name, package, python = "gspc", "gspc-trio", PYTHON
    note = "gspc_trio.Executor(cores=2, tune_gc=True), embedded; for W5a and W5c with data_bytes=1 GiB"
    for_data: Any = None

    def start(self) -> None:
        """Bring it up."""
        from gspc_trio import Executor

        self.executor = Executor(cores=CORES, tune_gc=True)

    def stop(self) -> None:
        """Take it down."""
        self.executor.shutdown(cancel_futures=True)
        if self.for_data is not None:
            self.for_data.shutdown(cancel_futures=True)

    def transfer(self, nbytes: int, kind: str, seed: int) -> Any:
        """Have one task make a large value and another use it: in shared memory, which one has to ask for."""
        from bench_peers import consume, produce

        from gspc_trio import Executor

        if self.for_data is None:
            self.for_data = Executor(cores=CORES, tune_gc=True, data_bytes=DATA_BYTES)
        made = self.for_data.submit(produce, nbytes, kind, seed)
        return self.for_data.submit(consume, made).result()

    def submit(self, fn: Any, *args: Any) -> Any:
        """Submit one task."""
        return self.executor.submit(fn, *args)

    def map(self, fn: Any, items: Any) -> list[Any]:
        """Submit a task for each item; return the results in order."""
        return list(self.executor.map(fn, items))


class GspcRemote(Gspc):
    """Run-time system and RIF in processes of their own."""

    name = "gspc-remote"
    note = "gspc_trio.Executor on gspc-rts start --cores 2: RTS with RM and RIF are processes of their own"

    def start(self) -> None:
        """Bring it up."""
        from gspc_trio import Executor

        self.folder = tempfile.mkdtemp(prefix="gspc-bench-")
        file = os.path.join(self.folder, "rts.json")
        command = [PYTHON, "-m", "gspc_trio.cli.rts", "start", "--cores", str(CORES)]
        command += ["--connection-file", file]
        self.rts = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.rts.stdout is not None
        for line in self.rts.stdout:
            if line.startswith("connection file"):
                break
        self.for_data = self.executor = Executor(connection_file=file, tune_gc=True)

    def stop(self) -> None:
        """Take it down."""
        super().stop()
        self.rts.terminate()
        self.rts.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
