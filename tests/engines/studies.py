"""Studies for tests: a server that does what files tell it, and writes down what it is told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.e2e.support import World, completed, open_world, wait_until
from tests.engines.mpi import AS_ROOT
from tests.engines.support import Cluster

SERVER = '''
"""Ask for clients, write down what becomes of them, and cancel those for which there is a file."""
import json, os, sys
from pathlib import Path
from gspc_trio.study import StudyOver, connect

folder, groups, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
incarnation = int(os.environ["GSPC_INCARNATION"])
(folder / f"pid.{incarnation}").write_text(str(os.getpid()))
with connect() as study, (folder / "log").open("a") as log:
    def say(*words):
        log.write(json.dumps(words) + "\\n")
        log.flush()
    say(incarnation, "connected", "CHECKPOINT" if "GSPC_CHECKPOINT" in os.environ else "")
    ended, wanted, cancelled = 0, groups, set()
    for first in range(0, groups * size, size):
        study.submit(range(first, first + size), sys.argv[4:])
    while ended < wanted * size:
        if (folder / "more").exists() and wanted == groups:
            wanted += 1
            study.submit(range(groups * size, wanted * size), sys.argv[4:])
        for path in folder.glob("cancel.*"):
            if path not in cancelled:
                cancelled.add(path)
                study.cancel(int(path.suffix[1:]))
        change = study.next_change(0.2)
        if change is not None:
            say(incarnation, change.client_id, str(change.state), change.job_id, change.text)
            ended += str(change.state) in ("completed", "failed", "cancelled", "not submitted")
    study.done()
'''

EXAMPLE = Path(__file__).parents[2] / "examples" / "study"

LONG_S = 600.0
"""Far more than anything here takes, in the queue of a batch system on a busy host."""

GATED = 'echo "I am $GSPC_CLIENT_ID"; until [ -e gate ] || [ -e gate.$GSPC_CLIENT_ID ]; do sleep 0.2; done'
"""A client that says who it is, and waits for the file ``gate``, or for one of its own."""


class StudyRun:
    """A study whose launcher runs.

    Args:
        world: where it runs.
        scheduler: its adapter.
        server: program and arguments of its server.
        launched: the command that starts the launcher's own, such as ``salloc``.
        has_journal: whether another launcher can go on for this one.
        options: of the study.
    """

    def __init__(
        self,
        world: World,
        scheduler: str,
        server: Sequence[str],
        launched: Sequence[str] = (),
        has_journal: bool = False,
        **options: object,
    ) -> None:
        self._world = world
        self.folder = world.folder / "study"
        self.folder.mkdir(mode=0o777, exist_ok=True)
        often = {"job_update_interval_s": 1.0, "timer_interval_s": 30.0, "verbose": 1}
        said = {"output_dir": "out", "scheduler": scheduler, "server_command": server, **often, **options}
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in said.items()]
        (self.folder / "study.toml").write_text("".join(lines))
        command = [*launched, sys.executable, "-m", "gspc_trio.cli.launcher", "-c", "study.toml"]
        command += ["--journal", "journal"] if has_journal else []
        self._program = ("/bin/sh", "-c", 'exec "$@" >>said 2>&1', "sh", *command)
        self.launcher = world.start_program(*self._program, cwd=self.folder)

    @classmethod
    def of_clients(
        cls,
        world: World,
        scheduler: str,
        groups: int,
        size: int,
        has_journal: bool = False,
        **options: object,
    ) -> StudyRun:
        """Start a study with so many jobs of so many clients, which wait for files."""
        folder = world.folder / "study"
        folder.mkdir(mode=0o777)
        (folder / "server.py").write_text(SERVER)
        server = [sys.executable, "server.py", str(folder), str(groups), str(size), "/bin/sh", "-c", GATED]
        return cls(world, scheduler, server, has_journal=has_journal, **{"group_size": size, **options})

    def kill_launcher(self) -> None:
        """Kill the launcher; its jobs stay."""
        self.launcher.kill()
        self.launcher.wait()

    def start_again(self) -> None:
        """Start the launcher that goes on for the one that was killed."""
        self.launcher = self._world.start_program(*self._program, cwd=self.folder)

    def log(self) -> list[list[object]]:
        """Return what servers have written down."""
        path = self.folder / "log"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def states(self, client_id: int) -> list[str]:
        """Return the states of a client that servers were told, in order."""
        return [str(entry[2]) for entry in self.log() if entry[1] == client_id]

    def wait_for(self, state: str, *client_ids: int) -> None:
        """Wait until these clients have been in a state."""
        wait_until(
            lambda: self.is_over() or all(state in self.states(one) for one in client_ids),
            f"{client_ids} are {state}: {self.log()}",
            LONG_S,
        )
        assert all(state in self.states(one) for one in client_ids), (self.log(), self.describe())

    def is_over(self) -> bool:
        return self.launcher.poll() is not None

    def output(self, client_id: int) -> str:
        """Return what a client has printed."""
        return "".join(
            path.read_text() for path in (self.folder / "out").glob(f"job.*.client.{client_id}.out")
        )

    def wait_for_output(self, *client_ids: int) -> None:
        """Wait until these clients run, as they say themselves."""
        wait_until(
            lambda: self.is_over() or all(self.output(one) for one in client_ids), f"{client_ids} run", LONG_S
        )
        assert all(self.output(one) for one in client_ids), self.describe()

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def describe(self) -> str:
        """Return what there is to say of a study that has failed."""
        files = [self.folder / "said", *sorted((self.folder / "out").glob("*"))]
        texts = [f"{path.name}: {path.read_text()}" for path in files if path.is_file()]
        return "\n".join([str(self.log()), *texts])

    def said(self) -> str:
        """Return what the launcher has said."""
        return (self.folder / "said").read_text()

    def interrupt(self) -> None:
        """Have it end as Ctrl-C would."""
        for pid in self._world.pids("gspc_trio.cli.launcher"):
            with contextlib.suppress(OSError):  # gone meanwhile
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(sys.executable.encode()):
                    os.kill(pid, signal.SIGINT)

    def kill_server(self, incarnation: int) -> None:
        os.kill(int((self.folder / f"pid.{incarnation}").read_text()), signal.SIGKILL)

    def end(self) -> int:
        """Return the exit status of the launcher when it has ended."""
        try:
            wait_until(self.is_over, "the study ends", LONG_S)
        except AssertionError as error:
            raise AssertionError(self.describe()) from error
        return completed(self.launcher).returncode


@contextlib.contextmanager
def open_study_world(cluster: Cluster) -> Iterator[World]:
    """A place where studies run whose files each user of this host can find; no batch job may be left."""
    with TemporaryDirectory(prefix="study-") as folder:
        Path(folder).chmod(0o755)
        with open_world(Path(folder), forks=False) as place:
            place.environment |= {**AS_ROOT, **cluster.environment, "OMPI_MCA_orte_tmpdir_base": folder}
            yield place
        wait_until(lambda: cluster.jobs() == [], "no batch job is left")


def check_example(world: World, scheduler: str, **options: object) -> None:
    """The example runs on an engine, to its end."""
    server = [sys.executable, str(EXAMPLE / "server.py")]
    study = StudyRun(world, scheduler, server, group_size=4, job_limit=4, **options)
    assert study.end() == 0, study.describe()
    assert (study.folder / "out" / "pi.txt").read_text().startswith("3.1"), study.describe()
    assert "may be left" not in study.said()


def check_interrupt(world: World, scheduler: str, **options: object) -> None:
    """A study that is interrupted has ended with all of its processes."""
    study = StudyRun.of_clients(world, scheduler, groups=2, size=1, **options)
    study.wait_for_output(0, 1)
    study.interrupt()
    assert study.end() == 130, study.describe()
    assert "may be left" not in study.said()
    world.wait_nothing_left()
