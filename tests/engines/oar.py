"""An OAR server for tests with two nodes, both this host: PostgreSQL, the sshd of OAR, and its Almighty."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.support import wait_until
from tests.engines.support import START_S, processes_of

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
TOOLS = ("oarsub", "oarstat", "oardel", "Almighty", "oar-database", "oarnodesetting", "pg_ctlcluster", "sshd")
PACKAGES = "oar-server, oar-server-pgsql, oar-node, oar-user, oar-user-pgsql, postgresql"
CONFIGURATION = Path("/etc/oar/oar.conf")
START_FILE = Path("/var/lib/oar/.batch_job_bashrc")
DATABASE = "gspc_engines"
HOSTS = ("127.0.0.1", "127.0.0.2")
CORES = 2
"""Resources of each host."""

SETTINGS = {
    "DB_BASE_NAME": DATABASE,
    "DB_BASE_LOGIN": DATABASE,
    "DB_BASE_LOGIN_RO": f"{DATABASE}_ro",
    "DB_BASE_PASSWD": DATABASE,
    "DB_BASE_PASSWD_RO": DATABASE,
    "SCHEDULER_JOB_SECURITY_TIME": "1",
    "SCHEDULER_MIN_TIME_BETWEEN_2_CALLS": "1",
    # There are no control groups for jobs here; then oarsh has no other way to a node.
    "OARSH_BYPASS_WHOLE_SECURITY": "1",
}
WITHOUT = ("JOB_RESOURCE_MANAGER_PROPERTY_DB_FIELD", "CPUSET_PATH", *SETTINGS)


def missing() -> str:
    """Return why there can be no OAR here, or ""."""
    if sys.platform != "linux" or os.getuid() != 0:
        return "an OAR server on this host needs root"
    lacking = [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]
    if lacking:
        return f"there is no {', '.join(lacking)}: install the Debian packages {PACKAGES}"
    there = subprocess.run(["pgrep", "-u", "oar", "-f", "Almighty"], capture_output=True, check=False)
    return "an OAR server runs here already, which is left alone" if there.returncode == 0 else ""


class Oar:
    """The server.

    Attributes:
        environment: for its commands, and for programs that call them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._cluster: tuple[str, str] | None = None
        self.environment = {"PATH": PATH}

    def start(self) -> None:
        """Bring it up, whatever a run of these tests that was killed has left."""
        self._restore()
        lines = [line for line in CONFIGURATION.read_text().splitlines() if not line.startswith(WITHOUT)]
        lines += [f'{name}="{value}"' for name, value in SETTINGS.items()]
        lines.append('[ -z "$OARDO_USER" ] || export OAR_JOB_USER=$OARDO_USER')
        self._write(CONFIGURATION, "\n".join(lines) + "\n")
        # Jobs would read the start file of whoever runs the tests, which may start anything.
        self._write(START_FILE, "")
        version, name, _, status = self.run("pg_lsclusters", "--no-header").splitlines()[0].split()[:4]
        if status != "online":
            self.run("pg_ctlcluster", version, name, "start")
            self._cluster = (version, name)
        self._drop_database()  # to one that is there, the next command adds all rules a second time
        self.run("oar-database", "--create", "--db-is-local", "--force-yes")
        Path("/run/sshd").mkdir(exist_ok=True)
        self._daemon("sshd", shutil.which("sshd", path=PATH) or "sshd", "-D", "-f", "/etc/oar/sshd_config")
        self.start_server()
        for host in CORES * HOSTS:
            self.run("oarnodesetting", "-a", "-h", host)
        # "Prevent users oar and root to submit jobs": tests run as root.
        assert self.run("oaradmissionrules", "--delete", "2"), "the rule against root is still there"
        wait_until(
            lambda: self.run("oarnodes", "-s").count("Alive") == CORES * len(HOSTS), "nodes live", START_S
        )

    def _write(self, path: Path, text: str) -> None:
        """Change a file of the host; what it was lies beside it, also for a run after one that was killed."""
        shutil.copy2(path, _before(path))
        path.write_text(text)

    def _restore(self) -> None:
        """Give the host its files back."""
        for path in (CONFIGURATION, START_FILE):
            if _before(path).exists():
                path.write_text(_before(path).read_text())
                _before(path).unlink()

    def _drop_database(self) -> None:
        self.run("oar-database", "--drop", "--db-is-local", "--force-yes")

    def start_server(self) -> None:
        """Start what manages the queue."""
        self._daemon("almighty", "setpriv", "--reuid=oar", "--regid=oar", "--init-groups", "Almighty")
        log = self._folder / "almighty.log"
        there = ("pgrep", "-u", "oar", "-f", "Almighty: bipbip")
        wait_until(lambda: self.run(*there), f"Almighty, see {log}", START_S)

    def kill_server(self) -> None:
        """End what manages the queue, at once; jobs go on."""
        self._kill(self._daemons.pop())
        wait_until(lambda: not self.run("pgrep", "-u", "oar", "-r", "DRST", "-f", "Almighty"), "it is gone")

    def _daemon(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **self.environment},
                    start_new_session=True,
                )
            )

    def _kill(self, daemon: subprocess.Popen[bytes]) -> None:
        for pid in processes_of(daemon.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        daemon.wait()

    def run(self, *command: str) -> str:
        """Run one of its commands and return what it printed."""
        return self._done(*command).stdout

    def _done(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, timeout=START_S
        )

    def jobs(self, *states: str) -> list[str]:
        """Return the ids of the jobs in these states; without any, of those that have not ended."""

        def ask() -> tuple[dict[str, dict[str, str]]] | None:
            done = self._done("oarstat", "-u", "-J")
            with contextlib.suppress(ValueError):
                return None if done.returncode else (json.loads(done.stdout or "{}"),)
            return None

        [listed] = wait_until(ask, "oarstat says which jobs there are")
        return [job for job, told in listed.items() if not states or told["state"] in states]

    def stop(self) -> None:
        """End it, jobs first."""
        try:
            with contextlib.suppress(AssertionError):
                for job in self.jobs():
                    self.run("oardel", job)
            for daemon in reversed(self._daemons):
                self._kill(daemon)
            self._drop_database()
        finally:
            self._restore()
            if self._cluster is not None:
                self.run("pg_ctlcluster", *self._cluster, "stop", "-m", "fast")


def _before(path: Path) -> Path:
    return path.with_name(path.name + ".before-tests")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other run of these tests has a server here, and keep others out."""
    if not CONFIGURATION.exists():
        yield
        return
    with CONFIGURATION.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def open_oar(folder: Path) -> Iterator[Oar]:
    """A server for the block."""
    server = Oar(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
