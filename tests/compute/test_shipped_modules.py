"""Modules from memory: imports, sources in tracebacks, what replaces what."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from collections.abc import Iterator

import pytest

from gspc_trio.compute import modules
from gspc_trio.protocol.values import dumps, loads

SOURCES = {
    "ship_a": ("/gone/ship_a.py", "from ship_b.inner import VALUE\ndef get():\n    return VALUE\n"),
    "ship_b": ("/gone/ship_b/__init__.py", ""),
    "ship_b.inner": ("/gone/ship_b/inner.py", "VALUE = 5\n"),
}


@pytest.fixture(autouse=True)
def own_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
    sys.modules.update(before)


def test_modules_and_packages_are_imported_from_memory_with_their_lines() -> None:
    modules.install(SOURCES)
    module = importlib.import_module("ship_a")
    assert module.get() == 5
    assert module.__file__ == "/gone/ship_a.py"
    assert inspect.getsource(module.get) == "def get():\n    return VALUE\n"
    assert pickle.loads(pickle.dumps(module.get)) is module.get


def test_a_shipped_module_comes_before_one_that_is_imported_already() -> None:
    import colorsys

    modules.install({"colorsys": ("/gone/colorsys.py", "MINE = True\n")})
    assert importlib.import_module("colorsys").MINE
    assert not hasattr(colorsys, "MINE")


def test_a_broken_module_says_so_at_its_import() -> None:
    modules.install({"ship_bad": ("/gone/ship_bad.py", "def (")})
    with pytest.raises(SyntaxError, match=r"ship_bad\.py"):
        importlib.import_module("ship_bad")
    assert importlib.util.find_spec("ship_nowhere") is None


TOOL = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Pair:
    left: int

def make():
    return Pair(3)
"""


def test_things_of_a_source_file_are_pickled_by_value() -> None:
    module = modules.make_module("/gone/tool_file.py", TOOL)
    assert "tool_file" not in sys.modules
    back = loads(dumps(module.make()))
    assert back == module.make()


def test_a_source_file_named_like_a_module_takes_no_place() -> None:
    before = sys.modules["json"] = importlib.import_module("json")
    assert modules.make_module("/gone/json.py", "X = 1").X == 1
    assert sys.modules["json"] is before
    with pytest.raises(ZeroDivisionError):
        modules.make_module("/gone/json.py", "1 / 0")
    assert sys.modules["json"] is before
