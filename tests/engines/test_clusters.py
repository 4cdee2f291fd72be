"""Running clusters of Dask and Ray as sites: RIFs are tasks there, and nothing of them is left."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gspc_trio import Executor
from gspc_trio.components.provision.batch import BadRequest, BatchRequest, BatchState
from tests.e2e.support import wait_until
from tests.engines.support import RunningCluster
from tests.processes import is_alive

ALL = ["dask", "ray"]


def place(seconds: float) -> str:
    time.sleep(seconds)
    return os.environ["GSPC_NODE"] + os.environ["GSPC_BATCH_ID"]


def request_in(folder: Path, name: str) -> BatchRequest:
    script = f'cat > "{folder}/{name}.$GSPC_NODE"; echo $$ >> "{folder}/{name}.$GSPC_NODE"; exec sleep 100'
    return BatchRequest(name, 1, nodes=2, script=script, secret="secret\n")


@pytest.mark.parametrize("engine", ALL, indirect=True)
def test_a_job_has_a_task_on_each_of_two_hosts_until_it_is_cancelled(engine: RunningCluster, tmp_path: Path):
    request = request_in(tmp_path, "gspc-two")
    command, stdin = engine.provider.submit(request), engine.provider.submit_input(request)
    assert engine.provider.submitted(engine.run(command, stdin)) == "gspc-two"
    files = [tmp_path / f"gspc-two.{node}" for node in range(2)]
    wait_until(lambda: all(file.exists() and file.read_text().count("\n") == 2 for file in files), "both run")
    pids = []
    for file in files:
        secret, pid = file.read_text().split()
        assert secret == "secret"
        pids.append(int(pid))
    wait_until(lambda: [job.state for job in engine.listed()] == [BatchState.RUNNING], "it is listed")
    engine.run(engine.provider.cancel("", "gspc-two"))
    wait_until(lambda: not any(map(is_alive, pids)), "nothing of it is left")
    wait_until(lambda: engine.listed("gspc-two")[0].state is BatchState.ENDED, "it is over")
    assert engine.listed() == []


@pytest.mark.parametrize("engine", ["dask"], indirect=True)
def test_two_users_each_need_one_line(engine: RunningCluster):
    def use(number: int) -> list[str]:
        with Executor(sites=engine.address) as executor:
            return list(executor.map(place, [0.02 * number] * 50))

    with ThreadPoolExecutor(2) as users:
        first, second = users.map(use, (1, 2))
    assert len(first) == len(second) == 50
    assert not set(first) & set(second), "each has jobs of its own"
    wait_until(lambda: engine.jobs() == [], "no job is left")


@pytest.mark.parametrize("engine", ALL, indirect=True)
def test_tasks_of_hosts_that_were_killed_run_elsewhere(engine: RunningCluster):
    with Executor(sites=engine.address) as executor:
        futures = [executor.submit(place, 0.5) for _ in range(20)]
        futures[0].result()
        wait_until(lambda: engine.jobs() != [], "a job runs")
        engine.lose_hosts()
        assert len([future.result() for future in futures]) == 20
    wait_until(lambda: engine.jobs() == [], "no job is left")


@pytest.mark.parametrize("engine", ALL, indirect=True)
def test_more_hosts_than_there_are_is_refused(engine: RunningCluster, tmp_path: Path):
    request = BatchRequest("gspc-many", 1, nodes=9, folder=str(tmp_path))
    done = engine.run(engine.provider.submit(request), engine.provider.submit_input(request))
    with pytest.raises(BadRequest, match="it has 3"):
        engine.provider.submitted(done)
    assert json.dumps(engine.jobs()) == "[]"
