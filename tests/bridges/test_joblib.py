"""joblib and scikit-learn on our backend give what they give on joblib's own."""

from __future__ import annotations

import sys

import pytest

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
    path = world.folder / "program.py"
    path.write_text(HEAD + text)
    done = world.run_program(sys.executable, str(path), anew=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


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
