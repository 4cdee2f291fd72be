"""A Slurm cluster for tests: munged, slurmctld, and a slurmd for each node, all on this host."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.support import wait_until
from tests.engines.support import START_S, end

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")

SAVED_S = 6.0
"""What slurmctld has not changed for so long it has saved."""

CONFIGURATION = """
ClusterName=gspc
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
MinJobAge=300
"""

NODE = (
    "NodeName=node{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} Boards=1 "
    "SocketsPerBoard=1 CoresPerSocket={cores} ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN\n"
)

UNCLEAR_SBATCH = """#!/bin/sh
PATH={path}
sbatch "$@" >&2
echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
exit 1
"""
"""A command that says that it has failed, though Slurm has the job."""


def missing() -> str:
    """Return why there can be no Slurm here, or ""."""
    if sys.platform != "linux" or os.getuid() != 0:
        return "a Slurm cluster on this host needs root"
    lacking = [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]
    return (
        f"there is no {', '.join(lacking)}: install the Debian packages slurm-wlm, munge" if lacking else ""
    )


class Slurm:
    """The cluster.

    Attributes:
        environment: for its commands, and for programs that call them.
    """

    def __init__(self, folder: Path, nodes: int, cores: int) -> None:
        self._folder = folder
        self._nodes, self._cores = nodes, cores
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PATH}

    def start(self) -> None:
        """Bring it up."""
        folder, host = self._folder, socket.gethostname().partition(".")[0]
        for name, mode in (("", 0o755), ("munge", 0o711), ("state", 0o700)):
            (folder / name).mkdir(exist_ok=True)
            (folder / name).chmod(mode)
        port = random.SystemRandom().randrange(20_000, 28_000)
        numbers = range(1, self._nodes + 1)
        lines = [NODE.format(number=n, host=host, port=port + n, cores=self._cores) for n in numbers]
        text = CONFIGURATION.format(host=host, port=port, folder=folder)
        queue = f"PartitionName=debug Nodes=node[1-{self._nodes}] Default=YES MaxTime=60 State=UP\n"
        (folder / "slurm.conf").write_text(text + "".join(lines) + queue)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        key = folder / "munge" / "key"
        key.write_bytes(random.SystemRandom().randbytes(128))
        key.chmod(0o600)
        munge = folder / "munge"
        self._daemon(
            "munged", "--foreground", f"--key-file={key}", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed",
        )  # fmt: skip
        wait_until((munge / "socket").exists, "munged is up", START_S)
        self.start_controller()
        for number in numbers:
            self._daemon("slurmd", "-D", "-N", f"node{number}", name=f"node{number}")
        idle = ("sinfo", "-h", "-N", "-t", "idle")
        wait_until(lambda: len(self.run(*idle).split("\n")) > self._nodes, "nodes", START_S)

    def start_controller(self) -> None:
        """Start what manages the queue."""
        self._daemon("slurmctld", "-D", name="slurmctld")

    def kill_controller(self) -> None:
        """End what manages the queue, at once; jobs go on.

        It writes what has changed within five seconds. What is not written yet is lost with it, such as
        the start of a job. So this is waited for.
        """
        saved = self._folder / "state" / "job_state"
        wait_until(lambda: saved.exists() and time.time() - saved.stat().st_mtime > SAVED_S, "it has saved")
        self._daemons["slurmctld"].kill()
        self._daemons.pop("slurmctld").wait()

    def pause_controller(self) -> None:
        """Stop what manages the queue for a while: whoever asks it waits."""
        self._daemons["slurmctld"].send_signal(signal.SIGSTOP)

    def continue_controller(self) -> None:
        """Let it go on."""
        self._daemons["slurmctld"].send_signal(signal.SIGCONT)

    def _daemon(self, *command: str, name: str = "") -> None:
        with (self._folder / f"{command[0]}.out").open("ab") as log:
            self._daemons[name or command[0]] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    def _done(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    def run(self, *command: str) -> str:
        """Run one of its commands and return what it printed."""
        return self._done(*command).stdout

    def jobs(self, *states: str) -> list[str]:
        """Return the ids of the jobs in these states; without any, of those that have not ended.

        On a busy host squeue may fail; then it is asked again.
        """
        wanted = ",".join(states or ("RUNNING", "PENDING", "SUSPENDED", "COMPLETING"))
        command = ("squeue", "-h", f"--states={wanted}", "-o", "%i")

        def ask() -> subprocess.CompletedProcess[str] | None:
            done = self._done(*command)
            return None if done.returncode else done

        told: str = wait_until(ask, "squeue says which jobs there are").stdout
        return told.split()

    def stop(self) -> None:
        """End it, jobs first."""
        for job_id in self.run("squeue", "-h", "--states=RUNNING,PENDING", "-o", "%i").split():
            self.run("scancel", job_id)
        for daemon in reversed(list(self._daemons.values())):
            end(daemon)


@contextlib.contextmanager
def open_slurm(folder: Path, nodes: int = 2, cores: int = 1) -> Iterator[Slurm]:
    """A cluster for the block."""
    cluster = Slurm(folder, nodes, cores)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
