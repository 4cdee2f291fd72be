"""SciPy and emcee compute with our pool what they compute without one."""

from __future__ import annotations

import sys

import pytest

from tests.e2e.support import World

pytestmark = pytest.mark.process


def run(world: World, text: str) -> str:
    path = world.folder / "program.py"
    path.write_text(text)
    done = world.run_program(sys.executable, str(path), anew=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def test_scipy_takes_the_map_of_a_pool_and_of_an_executor_as_workers(world: World) -> None:
    pytest.importorskip("scipy", reason="scipy is not installed: make bridges")
    printed = run(
        world,
        """
import os
from gspc_trio import Executor, Pool
from scipy.optimize import differential_evolution, brute

def distance(point):
    return sum((value - 1) ** 2 for value in point)

def where(point):
    return float(os.getpid())

if __name__ == "__main__":
    def found(workers):
        result = differential_evolution(
            distance, [(-5, 5)] * 2, seed=1, workers=workers, updating="deferred", maxiter=5, polish=False
        )
        return list(result.x), result.nfev

    alone = found(1)
    with Pool(2) as pool, Executor(cores=1) as executor:
        print(found(pool.map) == alone, found(executor.map) == alone)
        grid = brute(where, [slice(0, 1, 0.5)] * 2, workers=pool.map, full_output=True, finish=None)[3]
        print(os.getpid() in grid)
""",
    )
    assert printed == "True True\nFalse\n"


def test_emcee_takes_a_pool(world: World) -> None:
    pytest.importorskip("emcee", reason="emcee is not installed: make bridges")
    printed = run(
        world,
        """
import numpy
from gspc_trio import Pool
import emcee

def log_probability(point):
    return -0.5 * numpy.sum(point ** 2)

if __name__ == "__main__":
    begin = numpy.random.default_rng(1).normal(size=(8, 2))

    def chain(pool):
        sampler = emcee.EnsembleSampler(8, 2, log_probability, pool=pool)
        sampler.random_state = numpy.random.RandomState(1).get_state()
        sampler.run_mcmc(begin, 20)
        return sampler.get_chain()

    with Pool(2) as pool:
        print(numpy.array_equal(chain(pool), chain(None)))
""",
    )
    assert printed == "True\n"
