"""The house rules that a machine can check: who imports whom, how long files are, no dead file."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gspc_trio"
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

LAYERS = ["core", "policies", "workflow", "protocol", "nursery", "iml", "components"]
"""Each may import itself and those to its left."""

ALLOWED = {layer: set(LAYERS[: position + 1]) for position, layer in enumerate(LAYERS)}
ALLOWED["components"] |= {"version"}
ALLOWED["protocol"] |= {"version"}
ALLOWED["nursery"] |= {"version"}
ALLOWED["version"] = set()
ALLOWED["compute"] = {"core", "protocol", "iml", "compute"}
ALLOWED["iml"] -= {"policies", "workflow", "nursery"}  # compute processes use it: without trio
ALLOWED["executor"] = {*LAYERS, "version", "executor"}
ALLOWED["cli"] = {*LAYERS, "executor", "version", "cli", "tui"}
ALLOWED["tui"] = {"core", "protocol", "nursery", "version", "tui"}
ALLOWED["testing"] = {*LAYERS, "compute", "executor", "version", "testing"}
ALLOWED["__init__"] = set(ALLOWED) - {"cli", "tui", "testing", "compute"}

PURE = {"core", "policies", "workflow", "protocol"}
IMPURE_MODULES = {
    *("asyncio", "datetime", "select", "signal", "socket", "subprocess", "threading", "time", "trio")
}


def sources(root: Path = PACKAGE) -> list[Path]:
    return sorted(root.rglob("*.py"))


def python_files() -> list[Path]:
    folders = ("gspc_trio", "tests", "examples", "bench")
    return [path for folder in folders for path in sources(ROOT / folder)]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_layer_imports_only_what_lies_below_it(path: Path) -> None:
    room = room_of(path)
    for name in imports(parse(path)):
        parts = name.split(".")
        if parts[0] == "gspc_trio" and len(parts) > 1:
            assert parts[1] in ALLOWED[room], f"{room} must not import {name}"
        if room in PURE:
            assert parts[0] not in IMPURE_MODULES, f"{room} is pure and must not import {name}"


def test_pure_layers_use_no_global_random() -> None:
    for path in sources():
        if room_of(path) in PURE:
            for node in ast.walk(parse(path)):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "random"
                ):
                    assert node.attr == "Random", f"{path}:{node.lineno} uses the global random"


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path: Path) -> None:
    length = len(path.read_text(encoding="utf-8").splitlines())
    assert length <= FILE_LINES_MAX, f"{path} has {length} lines"
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{path}: {node.name} has {lines} lines"


def test_no_module_is_dead() -> None:
    """Every module is imported by another one, started by its name, or an entry point."""
    paths = [*python_files(), ROOT / "pyproject.toml"]
    everything = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    used = {name for path in python_files() for name in imports(parse(path))}
    for path in sources():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if path.name in ("__init__.py", "__main__.py"):
            continue
        started = f'"{module}' in everything or f"{module}:" in everything
        assert module in used or started, f"nobody uses {module}"


def test_public_functions_and_classes_say_what_they_do() -> None:
    for path in sources():
        for node in parse(path).body:
            if isinstance(node, DEFINITIONS) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path}:{node.lineno} {node.name} has no docstring"


def test_a_lower_layer_does_not_load_trio() -> None:
    code = "import sys, gspc_trio, gspc_trio.core.rm, gspc_trio.workflow.net; sys.exit('trio' in sys.modules)"
    import sys

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_repository_speaks_of_the_project_alone() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    forbidden = ("/" + "work/", "/" + "root/", "index" + "-url", "pypi." + "org")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".yml", ""} and path.is_file() and path.name != "LICENSE":
            text = path.read_text(encoding="utf-8", errors="replace")
            for word in forbidden:
                assert word not in text, f"{name} mentions {word}"
