"""How executors end: in order, interrupted, with the interpreter, in a fork, with their run-time system."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gspc_trio import Executor, Requirement, Shape, TaskFailed, TaskOptions, WorkflowError
from tests.e2e.support import wait_until
from tests.executor.support import double, say_and_hang, wait_for

PATIENCE_S = 60.0

pytestmark = pytest.mark.process


def script(world: Any, text: str) -> list[str]:
    """Write a program that a user might write; return its command."""
    path = world.folder / "program.py"
    path.write_text(f"import os, sys, time\nfrom pathlib import Path\nfrom gspc_trio import Executor\n{text}")
    return [sys.executable, str(path)]


def run(world: Any, text: str, **options: Any) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = world.run_program(*script(world, text), **options)
    return done


def fifo_of(world: Any) -> str:
    os.mkfifo(world.folder / "fifo")
    return str(world.folder / "fifo")


def test_functions_of_the_program_and_of_a_module_beside_it(world: Any) -> None:
    (world.folder / "beside.py").write_text("def triple(x):\n    return 3 * x\n")
    done = run(
        world,
        """
from beside import triple

FACTOR = 7

class Point:
    def __init__(self, x):
        self.x = x

def moved(point):
    return Point(point.x * FACTOR)

if __name__ == "__main__":
    with Executor(cores=2) as executor:
        points = list(executor.map(moved, [Point(i) for i in range(40)]))
        print(sum(p.x for p in points), all(type(p) is Point for p in points))
        print(executor.submit(moved, executor.submit(moved, Point(1))).result().x)
        print(sum(executor.map(triple, range(10))))
""",
    )
    assert (done.stdout, done.stderr) == ("5460 True\n49\n135\n", "")


def test_a_small_job_loads_nothing_that_only_others_need(world: Any) -> None:
    done = run(
        world,
        """
with Executor(cores=1) as executor:
    assert executor.submit(pow, 2, 3).result() == 8
    shells = ("iml", "components.job", "components.provision", "components.worker")
    names = ("layer", "iml_staging", "journal", "data", "ssh")
    others = {f"gspc_trio.{room}.shell.{name}" for room in shells for name in names}
    others |= {"trio_websocket", "statistics", "gspc_trio.protocol.codec"}
    rooms = ("components.managers.shell.group", "components.monitor.detector", "components.rm.shell.remote")
    rooms += ("components.rm.check", "components.rts.shell.state_files", "workflow.net", "workflow.runtime")
    print(sys.modules.keys() & (others | {f"gspc_trio.{room}" for room in rooms}))
""",
        anew=True,
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_the_end_of_the_interpreter_waits_for_tasks_and_leaves_nothing(world: Any) -> None:
    done = run(
        world,
        """
executor = Executor(cores=1)
left = Executor(cores=1)
executor.submit(Path("made").write_text, "by a task")
futures = [executor.submit(time.sleep, 0.001) for _ in range(20)]
futures[-1].add_done_callback(lambda _: print("the last one has ended"))
""",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "the last one has ended\n", "")
    assert (world.folder / "made").read_text() == "by a task"


def test_an_executor_that_nobody_holds_ends_with_its_tasks(world: Any) -> None:
    done = run(
        world,
        """
import threading
future = Executor(cores=1).submit(pow, 2, 5)
thread = next(t for t in threading.enumerate() if t.name == "gspc-executor")
print(future.result())
thread.join()
print("gone")
""",
    )
    assert (done.stdout, done.stderr) == ("32\ngone\n", "")


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_stops_everything(world: Any, times: int) -> None:
    fifo = fifo_of(world)
    command = script(
        world,
        """
def hang(path):
    Path(path).write_text("runs")
    time.sleep(600)

if __name__ == "__main__":
    with Executor(cores=2) as executor:
        future = executor.submit(hang, sys.argv[1])
        others = [executor.submit(time.sleep, 60) for _ in range(1000)]
        future.result()
""",
    )
    process = world.start_program(*command, fifo)
    assert Path(fifo).read_text() == "runs"
    for _ in range(times):
        os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode != 0
    world.wait_nothing_left(10)


def test_an_interrupt_while_the_block_waits_for_its_end(world: Any) -> None:
    fifo = fifo_of(world)
    command = script(
        world,
        """
def hang(path):
    Path(path).write_text("runs")
    time.sleep(600)

if __name__ == "__main__":
    with Executor(cores=1) as executor:
        executor.submit(hang, sys.argv[1])
""",
    )
    process = world.start_program(*command, fifo)
    assert Path(fifo).read_text() == "runs"
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    world.wait_nothing_left(10)


def test_a_fork_says_that_the_executor_is_not_its_own(world: Any) -> None:
    done = run(
        world,
        """
import warnings

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
    with Executor(cores=1) as executor:
        pending = executor.submit(time.sleep, 0.3)
        pid = os.fork()
        if not pid:
            for use in (lambda: executor.submit(pow, 2, 2), pending.result, executor.shutdown):
                try:
                    use()
                except RuntimeError as error:
                    print(error)
            with Executor(cores=1) as own:
                print(own.submit(pow, 2, 3).result())
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        pending.result()
        print(executor.submit(pow, 2, 4).result())
""",
    )
    assert done.stderr == ""
    assert done.stdout.count("that this one was forked from") + done.stdout.count("from which this one") == 3
    assert done.stdout.splitlines()[3:] == ["8", "16"]


def test_a_killed_program_leaves_nothing(world: Any) -> None:
    fifo = fifo_of(world)
    command = script(
        world,
        """
def hang(path):
    Path(path).write_text("runs")
    time.sleep(600)

if __name__ == "__main__":
    Executor(cores=2).submit(hang, sys.argv[1]).result()
""",
    )
    process = world.start_program(*command, fifo)
    assert Path(fifo).read_text() == "runs"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_S)
    world.wait_nothing_left(10)


def test_on_a_running_system_it_is_seen_and_stopped_like_any_job(world: Any) -> None:
    world.start_rts("--cores", "1")
    (world.folder / "tasks.py").write_text("import time\ndef nap(seconds):\n    time.sleep(seconds)\n")
    command = script(
        world,
        """
from tasks import nap

with Executor(connection_file=sys.argv[1]) as executor:
    executor.submit(nap, 0).result()
    futures = [executor.submit(nap, 600) for _ in range(3)]
    futures.append(executor.submit(str, futures[0]))
    for future in futures:
        print(type(future.exception()).__name__, future.exception())
""",
    )
    process = world.start_program(*command, world.connection_file)

    def tasks() -> Any:
        jobs = world.run_json("top", "--once")["jobs"]
        return [(it["state"], it["tasks"]["finished"], it["tasks"]["running"]) for it in jobs]

    wait_until(lambda: tasks() == [("running", 1, 1)], "a task to be seen that runs")
    (entry,) = world.run_json("jobserver", "list")
    job = entry["job"]
    assert world.run_json("jobserver", "status", job)["tasks"]["running"] == 1
    assert world.run("jobserver", "stop", job).returncode == 0
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")
    told = f"the executor's job {job} was stopped before the task ended: a client asked it to stop"
    assert out.splitlines() == [f"ExecutorBroken {told}"] * 4
    assert world.run_json("jobserver", "status", job)["state"] == "stopped"
    world.stop_rts()


def test_the_run_time_system_dies(world: Any) -> None:
    connection = world.folder / "rts.json"
    rts = world.start_rts("--cores", "1", "--connection-file", str(connection))
    fifo = fifo_of(world)
    command = script(
        world,
        """
from concurrent.futures import BrokenExecutor

def hang(path):
    Path(path).write_text("runs")
    time.sleep(600)

if __name__ == "__main__":
    with Executor(connection_file=sys.argv[2]) as executor:
        print(executor.submit(pow, 2, 3).result())
        for wait in (executor.submit(hang, sys.argv[1]).result, lambda: executor.submit(pow, 2, 2)):
            try:
                wait()
            except BrokenExecutor as error:
                print(error)
""",
    )
    process = world.start_program(*command, fifo, str(connection))
    assert Path(fifo).read_text() == "runs"
    os.kill(rts.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE_S)
    first, ended, broken = out.splitlines()
    assert first == "8"
    assert ended.startswith("the executor ended before the task did: the run-time system has gone")
    assert broken.startswith("the executor can run no more tasks: the run-time system has gone")
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"options": TaskOptions(attempts=0)}, "attempts must be at least 1, not 0"),
        ({"options": {"attempts": 2}}, "options is a TaskOptions, not {'attempts': 2}"),
        ({"shape": "node"}, "shape is a Shape, not 'node'"),
        ({"shape": Shape((Requirement(""),))}, "a resource class without a name"),
    ],
)
def test_needs_that_make_no_sense_are_refused_before_anything_starts(given: Any, problem: str) -> None:
    with pytest.raises(WorkflowError, match=re.escape(problem)):
        Executor(cores=1, **given)


@pytest.mark.parametrize(
    ("cores", "error", "problem"),
    [
        (1.5, TypeError, "cores is a whole number, 0 for what this machine has, not 1.5"),
        ("2", TypeError, "cores is a whole number, 0 for what this machine has, not '2'"),
        (None, TypeError, "cores is a whole number, 0 for what this machine has, not None"),
        (-1, ValueError, "cores is 0, for what this machine has, or more, not -1"),
    ],
)
def test_a_number_of_cores_that_makes_no_sense_is_refused(
    cores: Any, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(problem)}$"):
        Executor(cores=cores)


def test_memory_that_the_options_state_is_waited_for_and_limits() -> None:
    with Executor(cores=1, options=TaskOptions(memory_bytes=1 << 60)) as executor:
        with pytest.raises(TaskFailed, match=r"no host offers that much memory"):
            executor.submit(double, 1).result()


def test_there_is_no_run_time_system_to_join(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="missing"):
        Executor(connection_file=tmp_path / "missing")


def test_shutdown_without_waiting(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    executor = Executor(cores=1)
    first = executor.submit(wait_for, str(fifo))
    after = executor.submit(double, first)
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(double, 1)
    assert not first.done()
    fifo.write_text("x")
    assert after.result(PATIENCE_S) == "xx"
    executor.shutdown(wait=True)


def test_shutdown_cancels_what_has_not_begun(tmp_path: Path) -> None:
    started, go = tmp_path / "started", tmp_path / "go"
    os.mkfifo(started)
    os.mkfifo(go)
    executor = Executor(cores=1)
    foreign = executor.submit(say_and_hang, str(started))
    assert started.read_text()
    waiting = [executor.submit(double, value) for value in range(100)]
    dependent = executor.submit(double, foreign)
    executor.shutdown(wait=False, cancel_futures=True)
    for future in (*waiting, dependent):
        wait_until(future.cancelled, "it is cancelled")
    assert foreign.running()
    assert foreign.cancel()
    executor.shutdown()


def test_shutdown_waits_for_a_call_that_waits_for_another_executor(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with Executor(cores=1) as one:
        with Executor(cores=1) as other:
            first = one.submit(wait_for, str(fifo))
            second = other.submit(double, first)
            first.add_done_callback(lambda _: None)
            other.shutdown(wait=False)
            fifo.write_text("x")
        assert second.result(PATIENCE_S) == "xx"
