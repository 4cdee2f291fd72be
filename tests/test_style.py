"""The house rules that a machine can check: who imports whom, how long files are, no dead file."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from msgspec import Struct

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gspc_trio"
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
MODULE_NAME = re.compile(r"gspc_trio(\.\w+)+")
DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

FOLDER_FILES_MAX = 25

ORDER = (
    *("version", "core", "protocol", "nursery", "records", "workflow.formats.in_tasks", "workflow", "iml"),
    *("iml.segment", "iml.mapping", "iml.local"),
    *(
        "compute.channel",
        "compute.io.area",
        "compute.code",
        "compute.folders",
        "compute.system",
        "compute.task_session",
        "compute.nested",
        "compute.results.stream",
    ),
    *("compute", "compute.commands"),
    *(
        "policies.placement",
        "components.monitor",
        "components.rm",
        "components.worker",
        "components.rif",
        "components.rts",
        "components.job",
        "components.coallocation.agents",
    ),
    "components.managers.messages",
    "components.coallocation",
    *("components.provision", "components.launcher", "components.wire", "policies", "components.managers"),
    *("records.shell", "components.rm.shell", "components.managers.shell", "components.provision.shell"),
    *("components.monitor.shell", "components.rts.shell"),
    *("iml.shell", "components.worker.shell", "components.rif.shell", "components.job.shell"),
    *(
        "components.launcher.shell",
        "components.coallocation.shell",
        "components",
        "executor",
        "integrations",
        "study",
        "",
        "tui",
        "integrations.metrics",
        "reports",
        "cli",
        "testing",
    ),
)
"""Each may import itself and those before it. A module is in the place with the longest name that fits; "" is
what programs import as ``gspc_trio``."""

PLACES = {place: number for number, place in enumerate(ORDER)}
WITH_TRIO = {"nursery", *ORDER[ORDER.index("records.shell") :]}
"""All others import neither trio nor these."""
PURE = set(ORDER) - WITH_TRIO - {"iml.segment", "iml.mapping", "iml.local", "compute.folders", "compute"}
PURE -= {
    "compute.io.area",
    "compute.system",
    "compute.task_session",
    "compute.nested",
    "compute.results.stream",
    "compute.commands",
    "workflow.formats.in_tasks",
}
IMPURE_MODULES = {
    *("asyncio", "datetime", "select", "signal", "socket", "subprocess", "threading", "time", "trio")
}
INSIDE_COMPUTE = ("compute", "compute.commands", "testing")
"""Those that may import the inside of a compute process."""
UNSEEN_BY_THE_TERMINAL = ("executor", "components", "compute", "workflow", "policies")
"""What ``tui`` does not import, nor any shell."""


def sources(root: Path = PACKAGE) -> list[Path]:
    return sorted(root.rglob("*.py"))


def python_files() -> list[Path]:
    folders = ("gspc_trio", "tests", "examples", "bench", "plugins")
    return [path for folder in folders for path in sources(ROOT / folder)]


class Source(Struct, frozen=True):
    """What the rules below want to know of a file: far less than its tree to keep and to look through.

    Attributes:
        imported: names of modules and of what is imported from them.
        functions: name and number of lines of each, of methods and inner ones too.
        public: name and line of each public function and class of the module, and whether it has a docstring.
        classes: the public classes of the module.
        docstring: of the module.
        modules: texts that are names of modules of ours.
    """

    imported: list[str]
    functions: list[tuple[str, int]]
    public: list[tuple[str, int, bool]]
    classes: list[str]
    docstring: str
    modules: set[str]


def summarize(text: str) -> Source:
    tree = ast.parse(text)
    one = Source([], [], [], [], ast.get_docstring(tree) or "", set())
    for node in tree.body:
        if isinstance(node, DEFINITIONS) and not node.name.startswith("_"):
            documented = is_overload(node) or bool(ast.get_docstring(node))
            one.public.append((node.name, node.lineno, documented))
            if isinstance(node, ast.ClassDef):
                one.classes.append(node.name)
    for inner in ast.walk(tree):
        if isinstance(inner, ast.Import):
            one.imported.extend(alias.name for alias in inner.names)
        elif isinstance(inner, ast.ImportFrom):
            assert inner.level == 0, "imports are absolute"
            one.imported.append(inner.module or "")
            one.imported.extend(f"{inner.module}.{alias.name}" for alias in inner.names)
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            one.functions.append((inner.name, (inner.end_lineno or inner.lineno) - inner.lineno + 1))
        elif isinstance(inner, ast.Constant) and MODULE_NAME.fullmatch(str(inner.value)):
            one.modules.add(str(inner.value))
    return one


def is_overload(node: ast.AST) -> bool:
    """One of several signatures; the docstring is at the implementation."""
    decorators = getattr(node, "decorator_list", [])
    return any(isinstance(one, ast.Name) and one.id == "overload" for one in decorators)


@cache
def source(path: Path) -> Source:
    gc.disable()  # a tree is no garbage, and looking for some takes twice as long as making it
    try:
        return summarize(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise AssertionError(f"{path}: {error}") from error
    finally:
        gc.enable()


def module_of(path: Path) -> str:
    """Return a module's name without that of the package."""
    return (
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")
    )


def place_of(module: str) -> str:
    """Return the place of a module in the order."""
    parts = module.split(".")
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((name for name in names if name in PLACES), "")


def imported_places(imported: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Return the name and the place of all that is imported of ours."""
    for name in imported:
        package, _, module = name.partition(".")
        if package == "gspc_trio" and module:
            yield name, place_of(module)


def complaints(module: str, imported: Sequence[str]) -> Iterator[str]:
    """Return what is wrong with the imports of a module."""
    place = place_of(module)
    for name, other in imported_places(imported):
        if PLACES[other] > PLACES[place]:
            yield f"{module}: {place} comes before {other} and must not import {name}"
        if place not in WITH_TRIO and other in WITH_TRIO:
            yield f"{module}: {place} does without trio and must not import {name}"
        if other == "compute" and place not in INSIDE_COMPUTE:
            yield f"{module}: {name} is inside of compute processes, and none of what others may use"
        if place == "tui" and (other in UNSEEN_BY_THE_TERMINAL or other.endswith(".shell")):
            yield f"{module}: the terminal sees messages and records, not {name}"
        if place == "testing" and other in ("tui", "cli"):
            yield f"{module}: simulations do without {name}"
    outside = {name.split(".")[0] for name in imported}
    if place in PURE:
        yield from (
            f"{module}: {place} is pure and must not import {name}"
            for name in sorted(outside & IMPURE_MODULES)
        )
    if place not in WITH_TRIO and outside & {"trio", "trio_websocket"}:
        yield f"{module}: {place} must do without trio"


def test_a_place_imports_only_what_comes_before_it() -> None:
    assert [one for path in sources() for one in complaints(module_of(path), source(path).imported)] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core.task", "from gspc_trio.records.facts import TaskChanged"),
        ("components.rm.machine", "import time"),
        ("components.rm.machine", "from gspc_trio.components.rm.shell import service"),
        ("components.worker.machine", "from gspc_trio.components.rif.machine import Rif"),
        ("compute.loop", "import trio"),
        ("iml.local", "import trio"),
        ("components.worker.shell.compute", "from gspc_trio.compute.loop import run"),
        ("tui.model", "from gspc_trio.components.rts.shell.client import RunTimeSystem"),
        ("nursery.scopes.drive", "from gspc_trio.components.wire.registry import REGISTRY"),
        ("components.rts.machine", "from gspc_trio.nursery.scopes.scope import open_scope"),
        ("components.job.shell.server", "from gspc_trio.testing.cluster import open_cluster"),
    ],
)
def test_what_the_order_forbids_is_found(module: str, line: str) -> None:
    assert len(list(complaints(module, summarize(line).imported))) >= 1


def dependencies() -> dict[str, set[str]]:
    """Return module -> modules of ours that it imports anywhere, for type checking too."""
    imported = {module_of(path): source(path).imported for path in sources()}
    return {
        module: {
            other
            for name in names
            if (other := name.removeprefix("gspc_trio").removeprefix(".")) in imported and other != module
        }
        - {""}
        for module, names in imported.items()
    }


def circles(graph: dict[str, set[str]]) -> Iterator[frozenset[str]]:
    """Yield the sets of modules each of which imports all others of its set, over others or not."""
    reached = {module: _reached(graph, module) for module in graph}
    seen: set[str] = set()
    for module, others in reached.items():
        if module in others and module not in seen:
            circle = frozenset(other for other in others if module in reached[other])
            seen |= circle
            yield circle


def _reached(graph: dict[str, set[str]], module: str) -> set[str]:
    found: set[str] = set()
    waiting = [module]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_no_modules_import_each_other() -> None:
    """But for views of the terminal, which draw each other."""
    found = {one for one in circles(dependencies()) if not min(one).startswith("tui.")}
    assert not found, found


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": {"d"}, "f": {"d"}}
    assert set(circles(graph)) == {frozenset("abc"), frozenset("de")}


def test_no_folder_is_full() -> None:
    for folder in {path.parent for path in sources()}:
        files = len(list(folder.glob("*.py")))
        assert files <= FOLDER_FILES_MAX, f"{folder} has {files} files: make rooms of it"


def too_long(path: Path) -> Iterator[str]:
    """Return what is too long in a file."""
    length = len(path.read_text(encoding="utf-8").splitlines())
    if length > FILE_LINES_MAX:
        yield f"{path} has {length} lines"
    for name, lines in source(path).functions:
        if lines > FUNCTION_LINES_MAX:
            yield f"{path}: {name} has {lines} lines"


def test_files_and_functions_are_short() -> None:
    assert [one for path in python_files() for one in too_long(path)] == []


def test_no_module_is_dead() -> None:
    """Every module is imported by another one, started by its name, or an entry point."""
    paths = [*python_files(), ROOT / "pyproject.toml"]
    everything = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    used = {name for path in python_files() for name in source(path).imported}
    for path in sources():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if path.name in ("__init__.py", "__main__.py"):
            continue
        if module not in used:
            assert f'"{module}' in everything or f"{module}:" in everything, f"nobody uses {module}"


def test_public_functions_and_classes_say_what_they_do() -> None:
    for path in sources():
        for name, line, documented in source(path).public:
            assert documented, f"{path}:{line} {name} has no docstring"


QUESTION_WORDS = {"what", "who", "which", "how", "where", "why"}
QUESTIONS_SHARE_MAX = 0.1
"""Of the modules so many may begin with such a word: the others say what they are by its name."""


def first_word(path: Path) -> str:
    """Return the first word of a module's docstring, in lower case."""
    return next(iter(re.findall(r"[a-z]+", source(path).docstring.lower())), "")


def test_modules_begin_with_what_they_are() -> None:
    questions = [str(path.relative_to(ROOT)) for path in sources() if first_word(path) in QUESTION_WORDS]
    assert len(questions) < QUESTIONS_SHARE_MAX * len(sources()), questions


def test_a_public_class_of_a_pure_file_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for path in sources():
        module = module_of(path)
        if place_of(module) in PURE:
            for name in source(path).classes:
                places.setdefault(name, []).append(module)
    twice = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert set(twice) <= {"Stop", "Stopped", "Limits"}, twice  # what every machine has


@pytest.mark.parametrize(
    "line",
    [
        "import gspc_trio.components.rm.machine, gspc_trio.workflow.net",
        "from gspc_trio import Executor",  # as modules do that each compute process imports
    ],
)
def test_a_lower_layer_does_not_load_trio(line: str) -> None:
    code = f"import sys; {line}; sys.exit('trio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_repository_speaks_of_the_project_alone() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    forbidden = ("/" + "work/", "/" + "root/", "index" + "-url", "pypi." + "org", "\n" + "<" * 7 + " ")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".yml", ""} and path.is_file() and path.name != "LICENSE":
            text = path.read_text(encoding="utf-8", errors="replace")
            for word in forbidden:
                assert word not in text, f"{name} mentions {word}"


# Numbers that only fall -------------------------------------------------------------------------------------

ANY_MAX = 399
"""Uses of the word ``Any``, imports included."""

TYPE_IGNORES_MAX, NOQAS_MAX = 8, 6
"""Ignored checks: where a library or the interpreter leaves no other way."""

NEAR_THE_CAP_LINES, NEAR_THE_CAP_FILES_MAX = FILE_LINES_MAX - 20, 5
"""Files that are nearly full; more of them say that files were filled, or cut where they were full."""

SMALL_LINES_MAX, SMALL_FILES_MAX = 110, 15
"""Small files that a single other one imports; more of them say that files were cut where no idea ends."""

UNTYPED_HANDLE = re.compile(r"def handle\(\s*self,\s*event: Any\b")


@cache
def texts() -> dict[str, str]:
    """Return file -> its text, of the package."""
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sources()}


def occurrences(pattern: str | re.Pattern[str], files: Mapping[str, str]) -> Counter[str]:
    """Return file -> how often something occurs in it, of those in which it does."""
    return Counter(
        {name: number for name, text in files.items() if (number := len(re.findall(pattern, text)))}
    )


def small_files(files: Mapping[str, str], importers: Mapping[str, int], started: set[str]) -> list[str]:
    """Return the small files that a single other one, or none, imports.

    Args:
        files: module -> its text.
        importers: module -> how many import it.
        started: modules that are run by their name.
    """
    return [
        module
        for module, text in files.items()
        if len(text.splitlines()) <= SMALL_LINES_MAX
        and importers.get(module, 0) <= 1
        and module not in started
    ]


def started_by_name(files: Iterable[Source]) -> set[str]:
    """Return the modules that are console scripts, or whose whole name is a text in these files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {entry.partition(":")[0] for entry in project["scripts"].values()}
    names = {name for name in names if MODULE_NAME.fullmatch(name)}.union(*(one.modules for one in files))
    return {name.removeprefix("gspc_trio.") for name in names}


def test_functions_of_tasks_are_loaded_in_a_moment() -> None:
    """Each compute process of a test imports the module of its function; pytest alone takes 0.1 s."""
    for path in sources(ROOT / "tests" / "components" / "tasks"):
        heavy = {"pytest", "trio", "gspc_trio", "tests.support"} & set(source(path).imported)
        assert not heavy, f"{path.name} imports {', '.join(heavy)}"


def test_few_values_are_of_any_type() -> None:
    found = occurrences(r"\bAny\b", texts())
    assert found.total() <= ANY_MAX, found.most_common()


def test_every_machine_says_which_events_it_takes() -> None:
    assert UNTYPED_HANDLE.search("    def handle(self, event: Any, now: float) -> list[Any]:")
    assert not occurrences(UNTYPED_HANDLE, texts())


def test_no_more_checks_are_ignored() -> None:
    ignores = occurrences(r"#\s*type:\s*ignore", texts())
    assert ignores.total() <= TYPE_IGNORES_MAX, ignores
    noqas = occurrences(r"#\s*(?:ruff:\s*)?noqa", texts())
    assert noqas.total() <= NOQAS_MAX, noqas


def test_few_files_are_nearly_full() -> None:
    full = [name for name, text in texts().items() if len(text.splitlines()) >= NEAR_THE_CAP_LINES]
    assert len(full) <= NEAR_THE_CAP_FILES_MAX, full


def test_few_small_files_have_a_single_reader() -> None:
    files = {
        module_of(path): texts()[str(path.relative_to(ROOT))]
        for path in sources()
        if path.name not in ("__init__.py", "__main__.py", "messages.py")
    }
    importers = Counter(other for others in dependencies().values() for other in others)
    started = started_by_name(
        source(path) for path in sources() if path.name not in ("__init__.py", "__main__.py", "messages.py")
    )
    found = small_files(files, importers, started)
    assert len(found) <= SMALL_FILES_MAX, f"{len(found)}: {found}: join some with those that use them"


def test_small_files_are_found() -> None:
    long = "\n" * (SMALL_LINES_MAX + 1)
    files = {"read_by_one": "", "read_by_two": "", "long": long, "command": ""}
    assert small_files(files, {"read_by_one": 1, "read_by_two": 2, "long": 1}, {"command"}) == ["read_by_one"]


def test_modules_that_are_started_by_name_are_known() -> None:
    started = started_by_name([summarize('run([sys.executable, "-m", "gspc_trio.compute.sweep"])')])
    assert {"cli.entry", "compute.sweep"} <= started
