"""joblib and scikit-learn on our backend give what they give on joblib's own."""

from __future__ import annotations

import pytest

from tests.bridges.support import BAD_DAYS, run_program
from tests.e2e.support import World

pytest.importorskip("joblib", reason="joblib is not installed: make bridges")
pytestmark = pytest.mark.process

HEAD = """
import os, sys, time
import numpy as np
import joblib
from joblib import Parallel, delayed, parallel_config
from pathlib import Path
import gspc_trio.joblib
gspc_trio.joblib.register()
"""


def run(world: World, text: str) -> str:
    return run_program(world, HEAD + text)


def test_scikit_learn_finds_what_it_finds_with_loky(world: World) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: make bridges")
    printed = run(
        world,
        """
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

def found(x, y):
    grid = GridSearchCV(LogisticRegression(), {"C": [0.01, 0.1, 1.0]}, cv=3).fit(x, y)
    forest = RandomForestClassifier(20, random_state=0, n_jobs=2).fit(x, y)
    scores = cross_val_score(LogisticRegression(), x, y, cv=4)
    return [grid.best_params_, list(grid.cv_results_["mean_test_score"]), list(scores),
            forest.predict_proba(x).tolist()]

if __name__ == "__main__":
    x, y = make_classification(400, 10, random_state=0)
    both = []
    for backend in ("gspc", "loky"):
        with parallel_config(backend, n_jobs=2):
            both.append(found(x, y))
    print(both[0] == both[1])
""",
    )
    assert printed == "True\n"


def test_large_arguments_lie_once_in_shared_memory_and_are_read_only(world: World) -> None:
    printed = run(
        world,
        """
from joblib.parallel import get_active_backend

def look(x, same, part, text, number):
    return x.flags.writeable, x is same, float(part[0]), len(text), number, os.environ["OMP_NUM_THREADS"]

def active():
    return type(get_active_backend()[0]).__name__

def nested():
    return active(), Parallel(n_jobs=2)(delayed(active)() for _ in range(2))[0]

if __name__ == "__main__":
    x = np.arange(1 << 20, dtype=float)
    text = "x" * (1 << 20)
    with parallel_config("gspc", n_jobs=2, inner_max_num_threads=3):
        calls = (delayed(look)(x, x, x[1:], text, number) for number in range(4))
        print(set(Parallel(return_as="generator_unordered", batch_size=1)(calls)))
        sums = Parallel(return_as="generator")(delayed(np.add)(np.full(1 << 18, n), 1.0) for n in range(9))
        print([float(one[0]) for one in sums if one.flags.writeable])
        print(set(Parallel()(delayed(nested)() for _ in range(2))))
        child = os.fork()
        if not child:
            print("in a fork:", Parallel()(delayed(pow)(n, 2) for n in range(3)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
""",
    )
    look = ", ".join(str((False, True, 1.0, 1 << 20, number, "3")) for number in range(4))
    lines = printed.splitlines()
    assert eval(lines[0]) == eval("{" + look + "}")
    assert lines[1:] == [
        str([float(number) for number in range(1, 10)]),
        "{('ThreadingBackend', 'SequentialBackend')}",
        "in a fork: [0, 1, 4]",
    ]


def test_bad_days(world: World) -> None:
    (world.folder / "bad_days.py").write_text(BAD_DAYS)
    printed = run(
        world,
        """
from bad_days import tell_bad_days

def compute(function, *arguments):
    return Parallel(n_jobs=2)(delayed(function)(number, *arguments) for number in range(2))

if __name__ == "__main__":
    with parallel_config("gspc"):
        tell_bad_days(compute)
        print(compute(abs))
""",
    )
    assert printed.splitlines() == [
        "die TerminatedWorkerError lost: a task was lost 3 times, the last time: ",
        "leave TerminatedWorkerError lost: a task was lost 3 times, the last time: ",
        "hang BadValue joblib: calls of hang cannot be sent: cannot pickle '_thread.lock' object",
        "fail_beside ValueError one has failed",
        "hang KeyboardInterrupt ",
        "nothing is left",
        "[0, 1]",
    ]


def test_a_run_time_system_that_runs_elsewhere_and_goes(world: World) -> None:
    rts = world.start_rts("--cores", "4")
    printed = run(
        world,
        f"""
import signal

def end(pid):
    os.kill(pid, signal.SIGKILL)
    time.sleep(1000)

def together(folder, number):
    name = Path(folder, str(number))
    name.touch()
    time.sleep(0.05)
    found = len(os.listdir(folder))
    name.unlink()
    return found

if __name__ == "__main__":
    with parallel_config("gspc", rts={world.connection_file!r}):
        print(joblib.effective_n_jobs(-1), Parallel()(delayed(abs)(number) for number in range(3)))
        os.mkdir("marks")
        calls = (delayed(together)(os.path.abspath("marks"), number) for number in range(20))
        print("at most 2:", max(Parallel(n_jobs=2, batch_size=1)(calls)) <= 2)
        try:
            Parallel()(delayed(end)({rts.pid}) for _ in range(2))
        except Exception as error:
            print(type(error).__name__, str(error).partition(":")[0])
""",
    )
    assert printed.splitlines() == [
        "4 [0, 1, 2]",
        "at most 2: True",
        "TerminatedWorkerError the executor ended before the task did",
    ]
