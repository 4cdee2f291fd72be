"""An executor with a cache: what was computed before is not computed again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from gspc_trio import CacheSettings, Executor

SOURCE = """
from pathlib import Path

def helper(x):
    return x * 10

def work(x, marks):
    with Path(marks).open("a") as file:
        file.write(f"{x} ")
    if x == 3:
        raise ValueError("three")
    return helper(x)
"""


def defined(text: str) -> Callable[[int, str], int]:
    """Return ``work`` of a program with this text: such functions travel by value."""
    module = ModuleType("__main__")
    exec(text, vars(module))
    work: Callable[[int, str], int] = module.work
    return work


def run(cache: CacheSettings | str, text: str, marks: str, items: range) -> tuple[list[object], str]:
    """Return the results of a run of a program, and what its cache was good for."""
    with Executor(1, cache=cache, threads=True) as executor:
        work = defined(text)
        futures = [executor.submit(work, item, marks) for item in items]
        found: list[object] = [future.exception() or future.result() for future in futures]
    return found, str(executor.cache_counts())


def test_only_what_has_changed_is_computed(tmp_path: Path) -> None:
    cache, marks = str(tmp_path / "cache"), str(tmp_path / "marks")
    found, told = run(cache, SOURCE, marks, range(4))
    assert found[:3] == [0, 10, 20]
    assert isinstance(found[3], ValueError)
    assert told == "0 from the cache, 3 kept"
    commented = "# a comment\n" + SOURCE.replace("    return x * 10", "    'Docstring.'\n    return x * 10")
    settings = CacheSettings(cache, 1 << 20, "time")
    assert run(settings, commented, marks, range(5))[1] == "3 from the cache, 1 kept"
    changed, told = run(cache, SOURCE.replace("x * 10", "x * 11"), marks, range(2))
    assert (changed, told) == ([0, 11], "0 from the cache, 2 kept")
    assert Path(marks).read_text().split() == list("01233401")


def test_calls_may_opt_out_and_others_are_refused_for_a_reason(tmp_path: Path) -> None:
    with Executor(1, cache=tmp_path / "cache", threads=True) as executor:
        uncached = executor.with_options(cache=False)
        assert [uncached.submit(abs, -1).result() for _ in range(2)] == [1, 1]
        first = executor.submit(abs, -2)
        assert executor.submit(abs, first).result() == 2
        assert executor.submit(abs, -2).result() == 2
    counts = executor.cache_counts()
    assert (counts.found, counts.kept, counts.not_cacheable) == (1, 2, 0)


def test_a_cache_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(0o755)
    with pytest.raises(ValueError, match="others have access to the cache"):
        Executor(1, cache=tmp_path / "cache", threads=True)


@pytest.mark.parametrize("cache", [5, "", b"c"])
def test_what_is_no_directory_is_no_cache(cache: object) -> None:
    with pytest.raises(TypeError, match="cache must be the name of a directory or CacheSettings, not"):
        Executor(1, cache=cache)  # type: ignore[arg-type]
