"""Run CPython's tests of executors and pools against ours: ``python -m tests.cpython.run DIRECTORY``.

The directory holds ``test/test_concurrent_futures.py`` and ``test/_test_multiprocessing.py`` of this version
of Python, as the Debian package ``libpython3.11-testsuite`` does. Other tests must pass than those that are
known to fail.
"""

from __future__ import annotations

import importlib
import io
import multiprocessing
import shutil
import sys
import tempfile
import unittest
from collections.abc import Iterator
from multiprocessing.context import BaseContext
from pathlib import Path
from types import ModuleType

from gspc_trio import Executor, Pool
from tests.cpython.known_failures import KNOWN_FAILURES

TESTS = (
    "ExecutorShutdownTest",
    "WaitTests",
    "AsCompletedTests",
    "ExecutorTest",
    "ProcessPoolExecutorTest",
    "InitializerMixin",
    "FailingInitializerMixin",
)
"""Classes of tests in CPython's module."""

FILES = ("test_concurrent_futures", "_test_multiprocessing")

OF_PROCESSES = frozenset({"ProcessPoolExecutorTest"})


class ThreadExecutor(Executor):
    """One that computes in threads."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, threads=True, **kwargs)  # type: ignore[arg-type]


class Executors:
    """What CPython's tests ask for beside an executor."""

    def get_context(self) -> BaseContext:
        """Return how the tests themselves start processes."""
        return multiprocessing.get_context("spawn")


class Pools:
    """What CPython's tests of pools ask for."""

    TYPE = "processes"
    Pool = Pool


def load_tests(directory: Path, place: Path) -> tuple[ModuleType, ModuleType]:
    """Return CPython's modules of tests of executors and of pools.

    Args:
        directory: where it is.
        place: where a package ``test`` can be made for it, which compute processes find, too.
    """
    standard = importlib.import_module("test.support").__file__
    assert standard is not None
    package = place / "test"
    shutil.copytree(Path(standard).parent, package / "support")
    (package / "__init__.py").touch()
    for name in FILES:
        shutil.copy(directory / "test" / f"{name}.py", package)
    for name in [name for name in sys.modules if name == "test" or name.startswith("test.")]:
        del sys.modules[name]
    sys.path.insert(0, str(place))
    futures, pools = (importlib.import_module(f"test.{name}") for name in FILES)
    return futures, pools


def cases(module: ModuleType, pools: ModuleType) -> Iterator[type[unittest.TestCase]]:
    """Return their tests, with our executors and our pool."""
    yield type("Executor_PoolTest", (pools._TestPool, Pools, unittest.TestCase), {})
    for kind in (Executor, ThreadExecutor):
        for name in TESTS:
            if kind is Executor or name not in OF_PROCESSES:
                attributes = {"executor_type": kind}
                mixin = type("OurMixin", (Executors, module.ExecutorMixin), attributes)
                yield type(
                    f"{kind.__name__}_{name}", (getattr(module, name), mixin, module.BaseTestCase), attributes
                )


def run(directory: Path, place: Path) -> dict[str, str]:
    """Run the tests; return the names of those that fail and should not, each with its traceback."""
    modules = load_tests(directory, place)
    loader = unittest.defaultTestLoader
    tests = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases(*modules))
    # What the runner prints tells nothing apart: a known failure reads like any other.
    result = unittest.TextTestRunner(io.StringIO(), verbosity=0).run(tests)
    failed = {_name_of(test): text for test, text in result.errors + result.failures}
    known = failed.keys() & KNOWN_FAILURES.keys()
    print(f"{result.testsRun} tests of CPython: {len(known)} do not pass, as docs/executor.md lists")
    return {name: text for name, text in sorted(failed.items()) if name not in known}


def _name_of(test: unittest.TestCase) -> str:
    """Return the name of a test without that of the executor: ``WaitTests.test_timeout``."""
    return test.id().rpartition("Executor_")[2]


def main() -> int:
    """Run them; return 0 if only those fail that are known to."""
    with tempfile.TemporaryDirectory() as place:
        unexpected = run(Path(sys.argv[1]), Path(place))
    for name, text in unexpected.items():
        print(f"fails, and is not among the known failures: {name}\n{text}", file=sys.stderr)
    return bool(unexpected)


if __name__ == "__main__":
    sys.exit(main())
