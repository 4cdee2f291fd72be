"""Libraries of modules in C++: compiled once for a kind of host, kept in a cache, called by tasks."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

ENTRY = "gspc_trio_call"
"""Function of a library: (bytes, their number, address of a result, of its number) -> 0, 1 for an error."""

RELEASE = "gspc_trio_release"
"""Function of a library that gives the memory of a result back."""

COMPILE_S = 600.0
"""A compiler that takes longer is stopped."""

KEPT_MAX = 256
"""So many libraries the cache has at most; the oldest ones go."""

OUTPUT_CHARS = 20_000
"""So much of what a compiler prints is kept."""


class CppSource(Struct, frozen=True):
    """What is compiled for a module.

    Attributes:
        module: its name.
        text: the program.
        has_headers: whether it includes files that are not the compiler's own.
        compiler_flags, linker_flags: as the net asks for them.
    """

    module: str
    text: str
    has_headers: bool = False
    compiler_flags: tuple[str, ...] = ()
    linker_flags: tuple[str, ...] = ()


class CompileError(Exception):
    """A library could not be made; the message is what the compiler has printed, or why there is none."""


class NativeError(Exception):
    """A function of a library has raised an exception; the message is what that says."""


class NativeFunction(Struct, eq=False):
    """The function of a library, callable on each host that it is sent to.

    Attributes:
        source: what it was compiled from.
        folder: where relative paths of flags begin.
        host: kind of host that it was compiled for.
        data: the library. On another kind of host it is compiled again.
    """

    source: CppSource
    folder: str
    host: str
    data: bytes
    _library: ctypes.CDLL | None = None

    def __reduce__(self) -> tuple[type[NativeFunction], tuple[object, ...]]:
        return NativeFunction, (self.source, self.folder, self.host, self.data)

    def __call__(self, data: bytes) -> bytes:
        """Return what the library makes of these bytes.

        Raises:
            CompileError: it cannot be compiled on this host.
            NativeError: it has raised an exception.
            OSError: it cannot be loaded.
        """
        if self._library is None:
            self._library = self._loaded()
        library = self._library
        result, size = ctypes.c_void_p(), ctypes.c_size_t()
        status = library[ENTRY](data, ctypes.c_size_t(len(data)), ctypes.byref(result), ctypes.byref(size))
        try:
            found = ctypes.string_at(result, size.value)
        finally:
            library[RELEASE](result)
        if status:
            raise NativeError(f"module {self.source.module}: {found.decode('utf-8', 'replace')}")
        return found

    def _loaded(self) -> ctypes.CDLL:
        made = self if self.host == host_kind() else compiled(self.source, self.folder)
        path = cache_folder() / f"{hashlib.sha256(made.data).hexdigest()}.so"
        if not path.is_file():
            _write(path, made.data)
        return ctypes.CDLL(str(path))


def address_of(view: memoryview) -> int:
    """Return where in this process memory lies that can be written; 0 for none at all."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if len(view) else 0


def host_kind() -> str:
    """Return what hosts have in common that can run each other's libraries."""
    return " ".join((platform.system(), platform.machine(), *platform.libc_ver()))


def compiler_command(variable: str = "CXX", usual: str = "c++", language: str = "C++") -> list[str]:
    """Return the words by which a compiler is called: that of C++ is ``$CXX``, else ``c++``.

    Args:
        variable, usual, language: environment variable that names it, its usual name, and what it compiles.

    Raises:
        CompileError: there is none.
    """
    words = shlex.split(os.environ.get(variable, "")) or [usual]
    if shutil.which(words[0]) is None:
        looked = (
            f"${variable} is {words[0]}" if os.environ.get(variable) else f"neither ${variable} nor {usual}"
        )
        raise CompileError(f"there is no compiler for {language} here ({looked})")
    return words


def compiled(source: CppSource, folder: str) -> NativeFunction:
    """Return the library of a source, from the cache if it has been compiled before.

    Args:
        source: the program, and flags.
        folder: where relative paths of flags begin, and where headers are looked for.

    Raises:
        CompileError: there is no compiler, or it has found errors; the message is what it printed.
    """
    words = compiler_command()
    command = [
        *words,
        "-std=c++17",
        "-O2",
        "-fPIC",
        "-fdiagnostics-color=never",
        "-fno-diagnostics-show-caret",
    ]
    if Path(folder).is_dir():
        command.append(f"-I{folder}")
    else:
        folder = "/"
    command += source.compiler_flags
    text = source.text
    if source.has_headers:  # what these say may have changed
        text = _run([*command, "-E", "-x", "c++", "-"], folder, text)
    told = repr((text, source.linker_flags))
    path = _library("c++", words, command, source.text, told, source.linker_flags, folder)
    return NativeFunction(source, folder, host_kind(), path.read_bytes())


def c_library(text: str, flags: tuple[str, ...] = ()) -> Path:
    """Return the file of a library in C, from the cache if it has been compiled before.

    Args:
        text: the program; it includes headers of the system alone.
        flags: for the compiler and the linker.

    Raises:
        CompileError: there is no compiler, or it has found errors; the message is what it printed.
    """
    words = compiler_command("CC", "cc", "C")
    command = [*words, "-std=gnu11", "-O2", "-fPIC", "-fdiagnostics-color=never"]
    return _library("c", words, command, text, repr((text, flags)), flags, "/")


def _library(
    language: str,
    words: list[str],
    command: list[str],
    text: str,
    told: str,
    linker_flags: tuple[str, ...],
    folder: str,
) -> Path:
    """Return the file of a library: made once for all that it depends on, which includes what is ``told``."""
    version = _run([*words, "--version"], folder, "")
    depends = repr((told, command, version, host_kind()))
    path = cache_folder() / f"{hashlib.sha256(depends.encode('utf-8', 'replace')).hexdigest()}.o.so"
    if not path.is_file():
        with tempfile.TemporaryDirectory(dir=path.parent) as made:
            output = Path(made) / "library.so"
            link = ["-shared", "-x", language, "-", "-x", "none", "-o", str(output), *linker_flags]
            _run([*command, *link], folder, text)
            output.chmod(0o600)
            output.replace(path)
        _forget_oldest(path.parent)
    return path


def _run(command: list[str], folder: str, text: str) -> str:
    """Return what a command prints."""
    try:
        done = subprocess.run(
            command,
            input=text,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMPILE_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"{command[0]} has not ended after {COMPILE_S:g} s") from None
    except OSError as error:
        raise CompileError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode:
        said = done.stderr.strip()[:OUTPUT_CHARS] or f"{command[0]} has failed with status {done.returncode}"
        raise CompileError(said)
    return done.stdout


def cache_folder() -> Path:
    """Return the directory in which libraries are kept; nobody else can write there.

    Raises:
        CompileError: there is none that is ours alone.
    """
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    candidates = (
        Path(home).expanduser() / "gspc-trio",
        Path(tempfile.gettempdir()) / f"gspc-trio-{os.geteuid()}",
    )
    for folder in candidates:
        with suppress(OSError, RuntimeError):
            inner = folder / "modules"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            inner.mkdir(mode=0o700, exist_ok=True)
            if all(_is_ours(each) for each in (folder, inner)):
                return inner
    raise CompileError(f"libraries of modules cannot be kept: {candidates[0]} is no directory of ours alone")


def _is_ours(folder: Path) -> bool:
    found = folder.lstat()
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _write(path: Path, data: bytes) -> None:
    """Write a file so that whoever finds it finds all of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)
    _forget_oldest(path.parent)


def _forget_oldest(folder: Path) -> None:
    with suppress(OSError):
        files = sorted(folder.glob("*.so"), key=lambda path: path.stat().st_mtime)
        for path in files[:-KEPT_MAX]:
            path.unlink()
