"""Load a workflow file, and find the sources that its tasks need elsewhere."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.core.frames import user_stack
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.definition import Workflow, build_workflow, with_offers
from gspc_trio.workflow.formats.format import (
    HEAD_BYTES,
    SOURCE_BYTES_MAX,
    ForeignWorkflow,
    Format,
    Function,
    ReadOptions,
    Source,
    check_options,
    find_format,
    format_names,
    recognise,
)

if TYPE_CHECKING:
    from gspc_trio.workflow.formats.in_tasks.native import CppSource

SHIPPED_FILES_MAX = 500
SHIPPED_BYTES_MAX = 8 * 2**20
"""Limits of what is shipped beside the workflow file; modules it has imported come first."""

_log = logging.getLogger(__name__)


class WorkflowFileError(ValueError):
    """The workflow file cannot be used; the message says why.

    Attributes:
        what: what is wrong, and where in the workflow file, in one line.
        stack: the frames that led to it, if there is more to say; each line of it begins with a line feed.
    """

    def __init__(self, what: str, stack: str = "") -> None:
        super().__init__(what + stack)
        self.what = what
        self.stack = stack


PYTHON = "python"
"""Name of the format of workflow files that are Python."""


class Reading(Struct, frozen=True, kw_only=True):
    """How a workflow file is to be read, as the user says it; a journal keeps it.

    Attributes:
        format: name of its format; "": suffix and content decide.
        tasks: path of a Python file whose functions are the tasks, "" for none.
        modules: path of a Python file whose functions are the modules; "": that of the same name beside the
            workflow file, if there is one.
        no_compile: whether modules in C++ are refused.
        firings, net, scale, work, files: see :class:`ReadOptions`.
        include: folders where files are found that it includes, after its own folder.
        seed: what fires next is drawn by it, in files of all formats; None: what has come first fires.
    """

    format: str = ""
    tasks: str = ""
    firings: int | None = None
    net: str = ""
    scale: float = 1.0
    work: str = "sleep"
    files: float | None = None
    modules: str = ""
    include: tuple[str, ...] = ()
    no_compile: bool = False
    seed: int | None = None


FROM_ITSELF = Reading()
"""The file itself says all."""


class LoadedWorkflow(Struct, frozen=True):
    """A workflow, the file it is from, and the sources to ship: module name -> (file name, text).

    ``fingerprint`` is that of the workflow file and of what it has imported from its directory; ``foreign``
    is what a format has made of the file, None for Python.
    """

    workflow: Workflow
    modules: dict[str, tuple[str, str]]
    fingerprint: str
    path: Path
    foreign: ForeignWorkflow | None = None


def load_workflow_file(
    path: Path, settings: Sequence[str], reading: Reading = FROM_ITSELF, *, explored: bool = False
) -> LoadedWorkflow:
    """Return the workflow in a file of any format.

    Args:
        path: of the file.
        settings: texts ``name=value``: parameters of the function of a Python file, tokens of input ports of
            others.
        reading: how it is to be read.
        explored: it is not to be run: input ports of a net in Python may lack values.

    Raises:
        WorkflowFileError: there is no such file, nobody knows its format, or its code cannot be used.
        FormatError: it is badly written; all that is wrong with it.
        SettingError: a setting is unknown or has a bad value.
    """
    chosen = format_of(path, reading.format)
    if chosen is None:
        if replace(reading, format="", seed=None) != FROM_ITSELF:
            names = Reading.__struct_fields__[1:]
            name = next(name for name in names if getattr(reading, name) != getattr(FROM_ITSELF, name))
            raise WorkflowFileError(
                f"--{name.replace('_', '-')} is not for {path}: that is a workflow file in Python"
            )
        loaded = _load_python(path, settings, explored)
    else:
        foreign, modules, fingerprint = read_foreign(path, chosen, reading)
        workflow = foreign.workflow(settings)
        loaded = LoadedWorkflow(workflow, modules, fingerprint, path.resolve(), foreign)
    if reading.seed is not None:
        loaded.workflow.net.seed = reading.seed
    return loaded


def format_of(path: Path, name: str = "") -> Format | None:
    """Return the format of a file, None for Python.

    Args:
        path: of the file.
        name: of the format, if the user says it.

    Raises:
        WorkflowFileError: there is no such file or format, or nobody knows its format.
    """
    if not path.is_file():
        raise WorkflowFileError(f"there is no workflow file {path}")
    if name == PYTHON or (not name and path.suffix == ".py"):
        return None
    try:
        if name:
            return find_format(name)
        with path.open("rb") as file:
            found = recognise(path.suffix, file.read(HEAD_BYTES))
    except WorkflowError as error:
        raise WorkflowFileError(str(error)) from error
    if found is None:
        raise WorkflowFileError(
            f"{path} is not a workflow file: neither its suffix nor its beginning is that of a format; "
            f"--format chooses one: {', '.join((PYTHON, *format_names()))}"
        )
    return found


def read_foreign(
    path: Path, chosen: Format, reading: Reading, *, explored: bool = False
) -> tuple[ForeignWorkflow, dict[str, tuple[str, str]], str]:
    """Return what a format makes of a file, the sources to ship with it, and its fingerprint.

    Args:
        path: of the file.
        chosen: its format.
        reading: how it is to be read.
        explored: it is not to be run: it may be one that never ends.

    Raises:
        WorkflowFileError: the file is too large, an option is not for this format, or the file of tasks
            cannot be used.
        FormatError: it is badly written; all that is wrong with it.
    """
    size_bytes = path.stat().st_size
    if size_bytes > SOURCE_BYTES_MAX:
        raise WorkflowFileError(
            f"{path}: it has {size_bytes:,} bytes; workflow files of at most {SOURCE_BYTES_MAX:,} are read"
        )
    tasks, modules = (None, {}) if not reading.tasks else _functions(Path(reading.tasks), "file of tasks")
    beside = _file_of_modules(path, chosen, reading)
    functions = None
    if beside is not None:
        functions, sources = _functions(beside, "file of modules")
        modules = {**modules, **sources}
    options = ReadOptions(
        tasks=tasks,
        firings=reading.firings,
        net=reading.net,
        scale=reading.scale,
        work=reading.work,
        files=reading.files,
        modules=functions,
        modules_file=reading.modules or str(path.with_suffix(".py")),
        compile=None if reading.no_compile else partial(_library, folder=str(path.resolve().parent)),
        explored=explored,
    )
    try:
        check_options(chosen, options)
    except WorkflowError as error:
        raise WorkflowFileError(f"{path}: {error}") from error
    digest = hashlib.sha256(_fingerprint(modules).encode())
    folders = [path.resolve().parent, *map(Path, reading.include)]

    def find(name: str) -> bytes | None:
        for folder in folders:
            with suppress(OSError):
                if (folder / name).stat().st_size <= SOURCE_BYTES_MAX:
                    data = (folder / name).read_bytes()
                    digest.update(f"{name}\0{len(data)}\0".encode(errors="surrogatepass") + data)
                    return data
        return None

    def functions_of(name: str) -> dict[str, Function]:
        found, sources = _functions(path.resolve().parent / name, "file of code")
        modules.update(sources)
        digest.update(_fingerprint(sources).encode())
        return found

    data = path.read_bytes()
    digest.update(data)
    foreign = chosen.read(Source(str(path), data, find, functions_of), options)
    return foreign, modules, digest.hexdigest()


def _library(source: CppSource, folder: str) -> Callable[[bytes], bytes]:
    from gspc_trio.workflow.formats.in_tasks.native import compiled  # few workflows have modules in C++

    return compiled(source, folder)


def _file_of_modules(path: Path, chosen: Format, reading: Reading) -> Path | None:
    """Return the Python file with the modules of a workflow file, if there is one."""
    if reading.modules:
        return Path(reading.modules)
    beside = path.with_suffix(".py")
    return beside if "modules" in chosen.options and beside.is_file() else None


def _functions(path: Path, what: str) -> tuple[dict[str, Function], dict[str, tuple[str, str]]]:
    """Return the public functions of a Python file, and the sources to ship with them.

    Raises:
        WorkflowFileError: there is none, or it cannot be imported.
    """
    module = _import_alone(path, what)
    functions: dict[str, Function] = {
        name: value
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
    }
    return functions, modules_beside(path.resolve())


def _import_alone(path: Path, what: str) -> ModuleType:
    if not path.is_file():
        raise WorkflowFileError(f"there is no {what} {path}")
    file = path.resolve()
    for one in (path, file):  # a link and what it leads to
        if one.suffix != ".py" or not one.stem.isidentifier():
            raise WorkflowFileError(
                f"{one} is not a {what}: a Python file is wanted, with letters, digits and _ in its name"
            )
    with _first_on_search_path(file.parent):
        return _import(file)


def _load_python(path: Path, settings: Sequence[str], explored: bool) -> LoadedWorkflow:
    """Import a workflow file in Python and build the workflow it offers.

    Its functions belong to a module named like the file, so that workers import them under the same name.
    While it is imported, its directory comes first on the module search path, as for a script; afterwards,
    and for tasks, last: no file beside it can stand in for a module that some library has yet to import.

    Args:
        path: a Python file with a function ``workflow(**settings)``.
        settings: texts ``name=value``.
        explored: input ports may lack values.

    Raises:
        WorkflowFileError: there is no such file, it cannot be imported, or it offers no workflow.
        SettingError: a setting is unknown or has a bad value.
    """
    module = _import_alone(path, "workflow file")
    with _first_on_search_path(path.resolve().parent):
        function = getattr(module, "workflow", None)
        if not callable(function):
            raise WorkflowFileError(f"{path} offers no workflow: it has no function workflow()")
        with blame_file(path.resolve(), spare=(ValueError, OSError)):
            built = build_workflow(function, settings, may_lack_values=explored)
            workflow = with_offers(built, vars(module))
    modules = modules_beside(path.resolve())
    return LoadedWorkflow(workflow, modules, _fingerprint(modules), path.resolve())


@contextmanager
def blame_file(path: Path, spare: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Say where a workflow file is wrong when its code raises something in the block.

    Args:
        path: of the file.
        spare: errors whose own message is for people; they go through as they are.

    Raises:
        WorkflowFileError: the code raised, or ended the program.
    """
    try:
        yield
    except spare:
        raise
    except SyntaxError as error:  # maybe in a module that the file imports
        line = error.lineno or _line_of_zero(Path(error.filename or path))
        where = f"{error.filename or path}{f', line {line}' if line else ''}"
        raise WorkflowFileError(f"{where}: {type(error).__name__}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path
        ]
        where = f", line {frames[-1].lineno}" if frames else ""
        stack = user_stack(error)
        is_all_said = frames and stack.count("\n  File ") == 0
        what = f"{path}{where}: {type(error).__name__}: {error}"
        raise WorkflowFileError(what, "" if is_all_said or not stack else f"\n{stack}") from error


def _line_of_zero(path: Path) -> int:
    """Return the line of the first byte 0, for which Python says none; 0 if there is no such byte."""
    with suppress(OSError):
        data = path.read_bytes()
        if b"\0" in data:
            return data.count(b"\n", 0, data.index(b"\0")) + 1
    return 0


def _fingerprint(modules: dict[str, tuple[str, str]]) -> str:
    """Return what changes when one of the imported sources does."""
    digest = hashlib.sha256()
    for name, (file, text) in sorted(modules.items()):
        imported = getattr(sys.modules.get(name), "__file__", None)
        if imported is not None and Path(imported).resolve() == Path(file).resolve():
            digest.update(f"{name}\0{len(text)}\0{text}".encode(errors="surrogatepass"))
    return digest.hexdigest()


@contextmanager
def _first_on_search_path(folder: Path) -> Iterator[None]:
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        with suppress(ValueError):  # the workflow has removed it
            sys.path.remove(entry)
        if entry not in sys.path:
            sys.path.append(entry)


def _import(path: Path) -> ModuleType:
    name = path.stem
    if name in sys.modules and Path(getattr(sys.modules[name], "__file__", None) or "/").resolve() != path:
        raise WorkflowFileError(f"{path} has the name of a module that is loaded already ({name}); rename it")
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(specification)
    try:
        with blame_file(path):
            specification.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _owner(name: str, folder: Path) -> str:
    """Return whose module of this name all programs of this interpreter find, "" if there is none."""
    if name in sys.stdlib_module_names:
        return "Python"
    paths = sysconfig.get_paths()
    installed = {paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()}
    entries = [entry for entry in sys.path if entry in installed and Path(entry) != folder]
    found = name == "gspc_trio" or PathFinder.find_spec(name, entries) is not None
    return "an installed package" if found else ""


def modules_beside(path: Path) -> dict[str, tuple[str, str]]:
    """Return the sources under the workflow file's directory that its tasks may import.

    These are the modules imported from there already, and the files beside it, as far as the limits allow.
    A file that was not imported and has the name of a module of Python or of an installed package is none of
    them: tasks get the other one. If it was imported, they get it, and a warning says so.
    """
    folder = path.parent
    files = {path: path.stem}
    for name, module in list(sys.modules.items()):
        source = Path(getattr(module, "__file__", None) or "/")
        if (
            name != "__main__"
            and source.suffix == ".py"
            and folder in source.parents
            and "site-packages" not in source.parts
        ):
            files.setdefault(source, name)
            if "." not in name and name != path.stem and (owner := _owner(name, folder)):
                _log.warning(
                    "%s has the name of a module of %s; as %s imports it, tasks get it, too: rename it",
                    source,
                    owner,
                    path.name,
                )
    for source in sorted(folder.glob("*.py"))[:SHIPPED_FILES_MAX]:
        if not _owner(source.stem, folder):
            files.setdefault(source, source.stem)
    modules: dict[str, tuple[str, str]] = {}
    room = SHIPPED_BYTES_MAX
    for source, name in files.items():
        try:
            text = source.read_bytes()
        except OSError:  # a directory of that name, a link to nowhere, not for us: no module to import either
            continue
        room -= len(text)
        if room < 0:
            break
        modules[name] = (str(source), text.decode("utf-8", "replace"))
    return modules
