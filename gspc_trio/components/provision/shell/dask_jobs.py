"""Jobs of a running Dask cluster: ``python -m ...dask_jobs submit|list|cancel|size ADDRESS [NAME]``.

A job is a set of tasks, each pinned to a worker of another host, which start a RIF and end with it. This
program is always run as one, so that its functions travel by value, and the scheduler needs nothing of us.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.providers.task_engine import EngineJob, EngineRequest, EngineSize
from gspc_trio.components.provision.shell.engine_program import Refused, Unanswered, main
from gspc_trio.core.imports import missing_extra

if TYPE_CHECKING:
    from distributed import Scheduler

CONNECT_TIMEOUT_S = 10.0
SEEN_TRIES, SEEN_WAIT_S = 200, 0.05
"""How often the scheduler is asked whether it has the tasks of a new job, and the pause between."""

PREFIX = "gspc-rif"
"""A key of a task is PREFIX:NAME:NODE:CORES."""


def run_node(told: bytes, node: int) -> int:
    """Run a RIF on this worker until it ends, or the task is cancelled; return its exit status."""
    import subprocess
    import sys

    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()
    command = (sys.executable, "-P", "-m", "gspc_trio.components.provision.shell.engine_node", str(node))
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.write(told + b"\n")
            process.stdin.flush()
            while True:
                try:
                    return process.wait(0.2)
                except subprocess.TimeoutExpired:
                    task = worker.state.tasks.get(key)
                    if task is None or task.state == "cancelled":
                        process.stdin.close()
                        return process.wait()
    except OSError as error:  # of a task that fails Dask prints all that it was given, and so the ticket
        print(f"cannot run a RIF here: {error}", file=sys.stderr)
        return 1


def hosts(dask_scheduler: Scheduler) -> list[tuple[str, int, int]]:
    """Return (worker, threads of its host, those that jobs have) for each host, the idlest first."""
    threads: dict[str, int] = {}
    chosen: dict[str, tuple[int, str]] = {}
    used: dict[str, int] = {}
    for worker in dask_scheduler.workers.values():
        if worker.status.name != "running":
            continue
        threads[worker.host] = threads.get(worker.host, 0) + worker.nthreads
        load = len(worker.processing), worker.address
        chosen[worker.host] = min(chosen.get(worker.host, load), load)
        cores = [int(str(task.key).split(":")[3]) for task in worker.processing if is_ours(task.key)]
        used[worker.host] = used.get(worker.host, 0) + sum(cores)
    order = sorted(chosen, key=lambda host: (used[host] - threads[host], host))
    return [(chosen[host][1], threads[host], used[host]) for host in order]


def is_ours(key: object) -> bool:
    """Return whether a task is a node of a job."""
    return str(key).startswith("gspc-rif:") and str(key).count(":") == 3


def tasks(dask_scheduler: Scheduler) -> list[tuple[str, str]]:
    """Return (key, state) of all nodes of jobs: ``running``, ``queued``, or ``gone`` with its worker."""
    found = []
    for task in list(dask_scheduler.tasks.values()):
        if not is_ours(task.key):
            continue
        at = task.processing_on
        if at is not None:
            state = "running" if task in at.executing else "queued"
        else:
            state = "queued" if task.state in ("released", "waiting", "queued") else "gone"
        found.append((str(task.key), state))
    return found


def release(name: str, dask_scheduler: Scheduler) -> None:
    """Have the scheduler forget the tasks of a job; their workers are told."""
    keys = [key for key in dask_scheduler.tasks if is_ours(key) and str(key).split(":")[1] == name]
    for key in keys:
        for client in list(dask_scheduler.tasks[key].who_wants or ()):
            dask_scheduler.client_releases_keys([key], client.client_key, "gspc-trio-cancel")


class DaskCluster:
    """A connection; see EngineCluster."""

    def __init__(self, address: str) -> None:
        try:
            import distributed
        except ImportError as error:
            raise Refused(missing_extra(address, error.name or "distributed", "dask")) from error
        self._dask: Any = distributed
        where = "tcp://" + address.removeprefix("dask://") if not address.startswith("tls://") else address
        try:
            self._client: Any = self._dask.Client(where, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise Refused(f"cannot connect to {address}: {error}") from error

    def submit(self, wanted: EngineRequest, told: bytes) -> None:
        """Start a job; its tasks wait until their workers have a free thread."""
        found = self._client.run_on_scheduler(hosts)
        if wanted.nodes > len(found):
            raise Refused(f"it has {len(found)} worker hosts, not {wanted.nodes}")
        keys = set()
        for node, (address, _, _) in enumerate(found[: wanted.nodes]):
            key = f"{PREFIX}:{wanted.name}:{node}:{wanted.cores}"
            keys.add(key)
            future = self._client.submit(
                *(run_node, told, node),
                key=key,
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            self._dask.fire_and_forget(future)
        for _ in range(SEEN_TRIES):  # what this client has sent may be lost when it ends too early
            if keys <= {key for key, _ in self._client.run_on_scheduler(tasks)}:
                return
            time.sleep(SEEN_WAIT_S)
        raise Unanswered("its scheduler does not say that it has the tasks")

    def jobs(self, only: str) -> Iterator[EngineJob]:
        """Return the jobs, or this one."""
        jobs: dict[str, set[str]] = {}
        for key, state in self._client.run_on_scheduler(tasks):
            jobs.setdefault(key.split(":")[1], set()).add(state)
        if only:
            jobs = {only: jobs.get(only, set())}
        for name, states in jobs.items():
            if "running" in states:
                yield EngineJob(name, BatchState.RUNNING)
            elif "queued" in states:
                yield EngineJob(name, BatchState.QUEUED, "its worker has no free thread")
            else:
                why = "its workers are gone" if states else "its tasks are over"
                yield EngineJob(name, BatchState.ENDED, why)

    def cancel(self, name: str) -> None:
        """End a job, if it is there."""
        self._client.run_on_scheduler(release, name)

    def size(self) -> EngineSize:
        """Return how many hosts have workers, and how many threads each of them has at least."""
        found = self._client.run_on_scheduler(hosts)
        if not found:
            raise Unanswered("it has no worker")
        return EngineSize(len(found), min(threads for _, threads, _ in found))

    def close(self) -> None:
        """Leave it."""
        self._client.close()


if __name__ == "__main__":
    os.environ.setdefault("DASK_DISTRIBUTED__LOGGING__DISTRIBUTED", "error")
    sys.exit(main(DaskCluster))
