"""Dask on our scheduler gives what its own threads give."""

from __future__ import annotations

import pytest

from tests.bridges.support import BAD_DAYS, run_program
from tests.e2e.support import World

pytest.importorskip("dask", reason="dask is not installed: make bridges")
pytestmark = pytest.mark.process

HEAD = """
import operator, os, sys, time
from pathlib import Path
import dask
from dask import delayed
from gspc_trio import Executor
from gspc_trio.dask import get

def inc(x):
    return x + 1

"""


def run(world: World, text: str) -> str:
    return run_program(world, HEAD + text)


def test_collections_have_the_values_that_threads_compute(world: World) -> None:
    pytest.importorskip("xarray", reason="xarray is not installed: make bridges")
    printed = run(
        world,
        """
import dask.array as da
import dask.bag as db
import numpy as np
import xarray as xr

def values():
    x = da.ones((1000, 1000), chunks=(250, 250)) * np.arange(1000)
    whole = (x + x.T).compute()
    whole[0, 0] = 0  # as with threads, a result may be written
    yield whole.sum(), x.sum(axis=0).std().compute()
    yield da.from_array(np.arange(400_000.0), chunks=50_000).cumsum(axis=0)[::100_000].compute().tolist()
    yield db.from_sequence(range(100), npartitions=4).map(inc).filter(lambda n: n % 3).frequencies().compute()
    parts = [delayed(inc)(number) for number in range(20)]
    yield dask.compute(delayed(sum)(parts), {"parts": parts[:3]}, optimize_graph=False)
    data = xr.DataArray(np.arange(600.0).reshape(20, 30), dims=("time", "place")).chunk({"time": 5})
    yield data.mean("time").values.tolist(), data.rolling(time=3).sum().sum().compute().item()

if __name__ == "__main__":
    found = {}
    for name, scheduler in {"ours": get, "threads": "threads"}.items():
        with dask.config.set(scheduler=scheduler):
            found[name] = repr(list(values()))
    print(found["ours"] == found["threads"] or found)
""",
    )
    assert printed == "True\n"


def test_graphs_keys_errors_and_callbacks(world: World) -> None:
    printed = run(
        world,
        """
from dask.callbacks import Callback

def refuse(x):
    raise ValueError(f"no {x}")

if __name__ == "__main__":
    with Executor(cores=2) as executor:
        on = get.on(executor)
        legacy = {"x": 1, "y": (inc, "x"), "z": (operator.add, "y", "x"), "all": (sum, ["x", "y", "z"])}
        print(on(legacy, [["z", "x"], "all"]), on(legacy, "y"), on(legacy, []))
        chain = {0: (inc, -1)} | {number: (inc, number - 1) for number in range(1, 3000)}
        print(on(chain, 2999), on(chain, [2999, 1500], optimize_graph=False))
        for graph, key in ((legacy, "w"), ({"a": (inc, "x"), "b": (refuse, "a")} | {"x": 1}, "b")):
            try:
                on(graph, key)
            except (KeyError, ValueError) as error:
                print(repr(error))
        mixed = {}
        for number in range(1000):
            mixed |= {("inc", number): (inc, number), ("len", number): (len, str(number))}
            mixed |= {("data", number): number, ("range", number): (list, (range, number % 3))}
        print(on(mixed, list(mixed)) == dask.get(mixed, list(mixed)))
        told = []
        with Callback(
            start=lambda graph: told.append("start"),
            start_state=lambda graph, state: told.append(len(state["ready"])),
            pretask=lambda key, graph, state: told.append(key),
            posttask=lambda key, value, graph, state, worker: told.append((key, value, worker)),
            finish=lambda graph, state, failed: told.append(failed),
        ):
            on(legacy, ["z"], optimize_graph=False)
        print(told)
""",
    )
    assert printed.splitlines() == [
        "((3, 1), 6) 2 ()",
        "2999 (2999, 1500)",
        "KeyError('w')",
        "ValueError('no 2')",
        "True",
        "['start', 1, 'y', ('y', 2, 'gspc'), 'z', ('z', 3, 'gspc'), False]",
    ]


def test_chains_are_one_task_and_what_is_not_needed_is_none() -> None:
    from dask._task_spec import convert_legacy_graph

    from gspc_trio.integrations.dask_scheduler import fused, needed

    graph = convert_legacy_graph(
        {"a": 1, "b": (abs, "a"), "c": (abs, "b"), "d": (abs, "c"), "e": (max, "c", "b"), "f": (abs, "e")}
    )
    assert set(needed(graph, ["d"])) == {"a", "b", "c", "d"}
    assert set(fused(needed(graph, ["d"]), ["d"])) == {"a", "d"}
    assert set(fused(needed(graph, ["d"]), ["d", "c"])) == {"a", "c", "d"}
    assert set(fused(graph, ["d", "f"])) == {"a", "b", "c", "d", "f"}
    with pytest.raises(KeyError, match="w"):
        needed(convert_legacy_graph({"v": (abs, "u"), "u": (abs, "v")}), ["w"])


def test_bad_days(world: World) -> None:
    (world.folder / "bad_days.py").write_text(BAD_DAYS)
    printed = run(
        world,
        """
from bad_days import tell_bad_days

def compute(function, *arguments):
    return dask.compute(*[delayed(function)(number, *map(delayed, arguments)) for number in range(2)])

if __name__ == "__main__":
    with dask.config.set(scheduler=get):
        tell_bad_days(compute)
        print(compute(abs))
""",
    )
    assert printed.splitlines() == [
        "die BrokenProcessPool lost: a task was lost 3 times, the last time: ",
        "leave BrokenProcessPool lost: a task was lost 3 times, the last time: ",
        "hang BadValue a value of type lock cannot be sent to another process: "
        "cannot pickle '_thread.lock' object",
        "fail_beside ValueError one has failed",
        "hang KeyboardInterrupt ",
        "nothing is left",
        "(0, 1)",
    ]


def test_a_run_time_system_that_goes(world: World) -> None:
    rts = world.start_rts("--cores", "2")
    printed = run(
        world,
        f"""
import signal

def end(pid):
    os.kill(pid, signal.SIGKILL)
    time.sleep(1000)

if __name__ == "__main__":
    with Executor(connection_file={str(world.connection_file)!r}) as executor:
        print(delayed(inc)(1).compute(scheduler=get.on(executor)))
        try:
            delayed(end)({rts.pid}).compute(scheduler=get.on(executor))
        except Exception as error:
            print(type(error).__name__, str(error).partition(":")[0])
""",
    )
    assert printed.splitlines() == ["2", "BrokenProcessPool the executor ended before the task did"]
