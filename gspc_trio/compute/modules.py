"""Modules that were shipped as source: importable from memory, their lines in tracebacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType


class ShippedModules:
    """Finds and loads modules of ``sources``: module name -> (file name, text)."""

    def __init__(self, sources: Mapping[str, tuple[str, str]]) -> None:
        self._sources = sources

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a shipped module (importlib's protocol of finders)."""
        del path, target
        if name not in self._sources:
            return None
        file_name = self._sources[name][0]
        is_package = os.path.basename(file_name) == "__init__.py"
        spec = ModuleSpec(name, self, origin=file_name, is_package=is_package)  # type: ignore[arg-type]
        spec.has_location = True  # so that the module gets __file__
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the making of the module to importlib."""
        del spec

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's text in it."""
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name: str) -> CodeType:
        """Return the compiled text of a shipped module."""
        file_name, text = self._sources[name]
        return compile(text, file_name, "exec", dont_inherit=True)

    def get_source(self, name: str) -> str:
        """Return the text of a shipped module; tracebacks and inspect ask for it."""
        return self._sources[name][1]


def install(sources: Mapping[str, tuple[str, str]]) -> None:
    """Make the shipped modules importable before all others, also instead of those imported already."""
    if not sources:
        return
    for name in sources:
        if name not in sys.builtin_module_names:
            sys.modules.pop(name, None)
    sys.meta_path.insert(0, ShippedModules(sources))


def make_module(path: str, text: str) -> ModuleType:
    """Return the module that ``text``, the content of the file ``path``, makes.

    It is in ``sys.modules`` only while it runs: not importable elsewhere either, its classes and functions
    are then pickled by value.
    """
    name = os.path.basename(path).partition(".")[0]
    loader = ShippedModules({name: (path, text)})
    module = ModuleType(name)
    module.__spec__ = loader.find_spec(name)
    module.__loader__ = loader  # type: ignore[assignment]
    module.__file__ = path
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    finally:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
    return module
