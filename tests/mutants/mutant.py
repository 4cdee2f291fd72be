"""Small faults in the product's own code: each is a text that takes the place of another one in a file.

Nothing is written: the functions of this process get the code that the changed file would give them.
"""

from __future__ import annotations

import ast
import gc
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from msgspec import Struct

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gspc_trio"

Patch = Callable[[Any, str, Any], object]
"""``setattr``, or that of a ``monkeypatch``."""


class Mutant(Struct, frozen=True):
    """One fault.

    Attributes:
        name: what is wrong with it, a short sentence.
        rule: what it breaks.
        file: where, below the package.
        old, new: what is replaced by what; ``old`` is there once.
        why: why nobody finds it, if nobody does.
    """

    name: str
    rule: str
    file: str
    old: str
    new: str
    why: str = ""

    @property
    def path(self) -> Path:
        """The file."""
        return PACKAGE / self.file

    @property
    def line(self) -> int:
        """The first line that it changes."""
        before, _, _ = self.source().partition(self.old)
        same = 0
        old, new = self.old.splitlines(), self.new.splitlines()
        while same < min(len(old), len(new)) and old[same] == new[same]:
            same += 1
        return 1 + before.count("\n") + min(same, len(old) - 1)

    def source(self) -> str:
        """Return the file as it is.

        Raises:
            ValueError: what is to be replaced is not there, or more than once.
        """
        text = read(self.path)
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name!r}: what it replaces is {count} times in {self.file}, not once")
        return text

    def changes(self) -> dict[CodeType, CodeType]:
        """Return the code of each function that it changes, and what takes its place.

        Raises:
            ValueError: it cannot be brought in.
        """
        text = self.source()
        pairs = list(_pairs(self.path, compiled(self.path), _changed(self, text)))
        for before, after in pairs:
            if not before.co_flags & CO_OPTIMIZED and _own(before) != _own(after):
                raise ValueError(f"{self.name!r} changes what runs when {self.file} is imported")
        codes = {before: after for before, after in pairs if _says(before) != _says(after)}
        if not codes:
            raise ValueError(f"{self.name!r} changes no function")
        return codes

    def apply(self, patch: Patch = setattr) -> None:
        """Let this process have the fault.

        Raises:
            ValueError: it cannot be brought in.
        """
        if not replace_code([self.path], self.changes(), patch):
            raise ValueError(f"nothing has a function that {self.name!r} changes")


@cache
def read(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")


@cache
def compiled(path: Path) -> CodeType:
    """Return the code of a file as it is."""
    return _compile(read(path), path)


def _changed(mutant: Mutant, text: str) -> CodeType:
    try:
        return _compile(text.replace(mutant.old, mutant.new), mutant.path)
    except SyntaxError as error:
        raise ValueError(f"{mutant.name!r} is no Python: {error}") from None


def _compile(source: str | ast.Module, path: Path) -> CodeType:
    return compile(source, str(path), "exec", dont_inherit=True)


def _walk(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _walk(constant)


def _pairs(path: Path, before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the code of each function before and after; what is there after alone is part of another."""
    theirs = dict(_numbers(after))
    for key, code in _numbers(before):
        if key in theirs:
            yield code, theirs[key]
        elif "<locals>" not in key[0] and "<" not in key[0]:
            raise ValueError(f"{path}: {key[0]} is gone")


def _numbers(top: CodeType) -> list[tuple[tuple[str, int], CodeType]]:
    """Return all code with its name; what has the same name is numbered."""
    counts: dict[str, int] = {}
    found = []
    for code in _walk(top):
        number = counts[code.co_qualname] = counts.get(code.co_qualname, 0) + 1
        found.append(((code.co_qualname, number), code))
    return found


def _own(code: CodeType) -> tuple[Any, ...]:
    """Return what code says itself, without the functions in it and without the numbers of its lines."""
    constants = [(type(each), each) for each in code.co_consts if not isinstance(each, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, constants


def _says(code: CodeType) -> tuple[Any, ...]:
    return *_own(code), [_says(each) for each in code.co_consts if isinstance(each, CodeType)]


def replace_code(paths: Iterable[Path], codes: dict[CodeType, CodeType], patch: Patch) -> int:
    """Let all functions of some files have other code; return how many have got it."""
    changed = 0
    for each in functions_of(paths):
        after = codes.get(each.__code__)
        if after is not None:
            patch(each, "__code__", after)
            changed += 1
    return changed


def functions_of(paths: Iterable[Path]) -> list[FunctionType]:
    """Return all functions of some files that there are in this process."""
    files = set(map(str, paths))
    for path in map(Path, files):
        module = path.relative_to(ROOT).with_suffix("")
        importlib.import_module(".".join(module.parts).removesuffix(".__init__"))
    return [
        each for each in gc.get_objects() if type(each) is FunctionType and each.__code__.co_filename in files
    ]


# What is reached --------------------------------------------------------------------------------------------

LINES_MAX = 10_000
"""More than a file has."""


def probe(files: Sequence[str]) -> set[int]:
    """Have this process note which statements of files it reaches.

    Returns:
        A set that fills: number of the file times :data:`LINES_MAX`, and the first line of the statement.
    """
    import builtins

    reached: set[int] = set()
    builtins.__reached__ = reached.add  # type: ignore[attr-defined]
    codes: dict[CodeType, CodeType] = {}
    for number, file in enumerate(files):
        path = PACKAGE / file
        tree = ast.parse(read(path))
        before = _compile(read(path), path)
        for body in list(_bodies(tree)):
            noted = []
            for statement in body:
                told = ast.parse(f"__reached__({number * LINES_MAX + statement.lineno})").body[0]
                noted += [ast.copy_location(told, statement), statement]
            body[:] = noted
        codes.update(_pairs(path, before, _compile(ast.fix_missing_locations(tree), path)))
    replace_code([PACKAGE / file for file in files], codes, setattr)
    return reached


def statement_of(mutant: Mutant) -> int:
    """Return the first line of the innermost statement that the mutant changes."""
    tree, line = _tree(mutant.path), mutant.line
    best: ast.stmt | None = None
    for body in _bodies(tree):
        for statement in body:
            within = statement.lineno <= line <= (statement.end_lineno or 0)
            if within and (best is None or statement.lineno >= best.lineno):
                best = statement
    if isinstance(best, ast.FunctionDef | ast.AsyncFunctionDef):
        best = best.body[0]
    if best is None:
        raise ValueError(f"{mutant.name!r} changes no statement of a function")
    return best.lineno


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(read(path))


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield each list of statements in functions."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _lists(function)


def _lists(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        if isinstance(statements, list):
            yield statements
            for statement in list(statements):
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield from _lists(statement)
    for handler in getattr(node, "handlers", ()):
        yield from _lists(handler)
