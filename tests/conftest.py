"""What all tests need of the process that runs them."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from gspc_trio.components.worker.shell.compute import GROUP_VARIABLE

# How long examples take depends on what else this machine does. With 100 a quarter of the time was theirs.
settings.register_profile(
    "shared", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared")

LONG = ("e2e", "simulation", "examples", "mutants")
"""Folders whose tests take seconds."""

SHORT = ("core", "policies", "protocol", "workflow", "test_style.py")
"""Those whose tests take milliseconds, with few exceptions."""

WAITING = ("e2e", "examples", "executor", "study")
"""Those whose tests wait for processes, as those of shells do."""

AT_THE_END = 0.1
"""This share of the tests that compute comes when no other is left."""

CLOCK = "autojump_clock"
"""A fixture that trio looks for among the arguments of the test alone."""


def pytest_configure() -> None:
    """Take signals again that were ignored, by a shell in the background or nohup: children inherit that.

    Whatever else pins to CPUs of this machine is not heeded.
    """
    os.environ[GROUP_VARIABLE] = f"tests-{os.getpid()}"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Have two workers for each core: tests of processes wait for these as often as they compute."""
    return 2 * len(os.sched_getaffinity(0))


def pytest_collection(session: pytest.Session) -> None:
    """Have each worker load another part of all tests first: what one compiles the others need not.

    A module that cannot be loaded is told of when it is collected. There is no garbage until then.
    """
    gc.disable()
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    folder = Path(__file__).parent
    if not worker or [Path(arg).resolve() for arg in session.config.args] != [folder]:
        return
    left_out = [Path(path).resolve() for path in session.config.getoption("ignore") or ()]
    there = [it for it in sorted(folder.rglob("test_*.py")) if not any(map(it.is_relative_to, left_out))]
    own = slice(int(worker.removeprefix("gw")), None, int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    _find_constants(sorted((folder.parent / "gspc_trio").rglob("*.py"))[own])
    for path in there[own]:
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(session.config.rootpath).with_suffix("").parts))


def _find_constants(paths: list[Path]) -> None:
    """Have Hypothesis find the constants of these modules, which it keeps in files and draws as well."""
    with suppress(ImportError, AttributeError):  # it is no public function
        find = import_module("hypothesis.internal.constants_ast").constants_from_module
        for path in paths:
            module = ModuleType(path.stem)
            module.__file__ = str(path)
            find(module)


def pytest_collection_finish() -> None:
    """Look for garbage again, but seldom among what has been collected: it stays."""
    gc.freeze()
    gc.unfreeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long: at the end there are only short tests, which all workers share.

    Tests that wait for processes and tests that compute take turns: while one worker waits, another computes.
    """
    waits = {item: _waits(item) for item in items}
    items.sort(key=lambda item: _how_short(item, waits[item]))
    waiting = [item for item in items if waits[item]]
    computing = [item for item in items if not waits[item]]
    turns = {item: turn / len(computing) for turn, item in enumerate(computing)}
    turns |= {item: turn / len(waiting) * (1 - AT_THE_END) for turn, item in enumerate(waiting)}
    _stay_together(turns)
    items.sort(key=turns.__getitem__)
    for item in items:
        jumps = isinstance(item, pytest.Function) and CLOCK in item.fixturenames
        if jumps and CLOCK not in signature(item.function).parameters:
            raise pytest.UsageError(f"{item.nodeid} would run in real time: {CLOCK} must be its own argument")


def _stay_together(turns: dict[pytest.Item, float]) -> None:
    """Have tests of a module that share what it starts once run when the first of them does.

    As soon as a worker runs a test of another module, what these share ends.
    """
    first: dict[Path, float] = {}
    for item, turn in turns.items():
        if _shares(item):
            turns[item] = first.setdefault(item.path, turn)


def _shares(item: pytest.Item) -> bool:
    """Whether it uses a fixture that is made once for its module."""
    made = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    return any(definitions[-1].scope == "module" for definitions in made)


@cache
def _parts(path: Path) -> tuple[str, ...]:
    return path.relative_to(Path(__file__).parent).parts


def _waits(item: pytest.Item) -> bool:
    """Whether it starts processes and waits for them, more than it computes itself."""
    parts = _parts(item.path)
    return parts[0] in WAITING or "shell" in parts or item.get_closest_marker("process") is not None


def _how_short(item: pytest.Item, waits: bool) -> int:
    folder = _parts(item.path)[0]
    is_machine = item.name == "runTest"  # a state machine of Hypothesis
    if folder in LONG or is_machine:
        return 0
    if waits:
        return 1
    return 3 if folder in SHORT else 2
