"""Load a workflow file, and find the sources that its tasks need elsewhere."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from attrs import frozen

from gspc_trio.workflow.definition import Workflow, build_workflow

SHIPPED_FILES_MAX = 500
SHIPPED_BYTES_MAX = 8 * 2**20
"""Limits of what is shipped beside the workflow file; modules it has imported come first."""


class WorkflowFileError(ValueError):
    """The workflow file cannot be used; the message says why."""


@frozen
class LoadedWorkflow:
    """A workflow, the file it is from, and the sources to ship: module name -> (file name, text).

    ``fingerprint`` is that of the workflow file and of what it has imported from its directory.
    """

    workflow: Workflow
    modules: dict[str, tuple[str, str]]
    fingerprint: str
    path: Path


def load_workflow_file(path: Path, settings: Sequence[str]) -> LoadedWorkflow:
    """Import a workflow file and build the workflow it offers.

    Its functions belong to a module named like the file, so that workers import them under the same name; its
    directory comes first on the module search path, as for a script.

    Args:
        path: a Python file with a function ``workflow(**settings)``.
        settings: texts ``name=value``.

    Raises:
        WorkflowFileError: there is no such file, it cannot be imported, or it offers no workflow.
        SettingError: a setting is unknown or has a bad value.
    """
    if not path.is_file():
        raise WorkflowFileError(f"there is no workflow file {path}")
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise WorkflowFileError(
            f"{path} is not a workflow file: a Python file is wanted whose name can be imported"
        )
    module = _import(path.resolve())
    function = getattr(module, "workflow", None)
    if not callable(function):
        raise WorkflowFileError(f"{path} offers no workflow: it has no function workflow()")
    with blame_file(path.resolve(), spare=(ValueError, OSError)):
        workflow = build_workflow(function, settings)
    modules = modules_beside(path.resolve())
    return LoadedWorkflow(workflow, modules, _fingerprint(modules), path.resolve())


@contextmanager
def blame_file(path: Path, spare: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Say in one line where a workflow file is wrong when its code raises something in the block.

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
    except (Exception, SystemExit) as error:
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path
        ]
        line = getattr(error, "lineno", None) or (frames[-1].lineno if frames else None)
        where = f", line {line}" if line else ""
        raise WorkflowFileError(f"{path}{where}: {type(error).__name__}: {error}") from error


def _fingerprint(modules: dict[str, tuple[str, str]]) -> str:
    """Return what changes when one of the imported sources does."""
    digest = hashlib.sha256()
    for name, (file, text) in sorted(modules.items()):
        imported = getattr(sys.modules.get(name), "__file__", None)
        if imported is not None and Path(imported).resolve() == Path(file).resolve():
            digest.update(f"{name}\0{len(text)}\0{text}".encode(errors="surrogatepass"))
    return digest.hexdigest()


def _import(path: Path) -> ModuleType:
    name = path.stem
    if name in sys.modules and Path(getattr(sys.modules[name], "__file__", None) or "/").resolve() != path:
        raise WorkflowFileError(f"{path} has the name of a module that is loaded already ({name}); rename it")
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    sys.path.insert(0, str(path.parent))
    module = sys.modules[name] = importlib.util.module_from_spec(specification)
    try:
        with blame_file(path):
            specification.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def modules_beside(path: Path) -> dict[str, tuple[str, str]]:
    """Return the sources under the workflow file's directory that its tasks may import.

    These are the modules imported from there already, and the files beside it, as far as the limits allow.
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
    for source in sorted(folder.glob("*.py"))[:SHIPPED_FILES_MAX]:
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
