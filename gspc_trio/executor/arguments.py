"""What is checked of the arguments of an executor, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex

from gspc_trio.compute.code import function_code
from gspc_trio.workflow.call_options import checked_count

if TYPE_CHECKING:
    import trio

    from gspc_trio.components.job.cache import CacheSettings
    from gspc_trio.components.rts.shell.client import RunTimeSystem
    from gspc_trio.components.rts.shell.several import ConnectionFiles
    from gspc_trio.components.rts.shell.system import SitesGiven
    from gspc_trio.executor.call_table import RtsOptions
    from gspc_trio.iml.data_layer import DataLayer


def open_systems(
    rts: RunTimeSystem | Mapping[str, RunTimeSystem | Path | str] | None,
    connection_file: Path | str | None,
    data_bytes: int,
) -> tuple[RunTimeSystem | None, ConnectionFiles | None]:
    """Return the run-time system that is open already, or several as one handle; else connection files.

    Raises:
        LocationError: a name cannot be used, or two name the same one.
        TypeError: something else was given, or more than one of them.
    """
    if rts is None:
        return None, connection_file
    _refuse_beside("rts", connection_file=connection_file, data_bytes=data_bytes)
    if not isinstance(rts, Mapping):
        _refuse_file(rts)
        return rts, None
    from gspc_trio.components.rts.shell.several import systems_or_files

    return systems_or_files(rts)


def rts_options(
    cores: int, files: ConnectionFiles | None, data_bytes: int, sites: SitesGiven | None, is_running: bool
) -> RtsOptions:
    """Return how the run-time system is opened.

    Raises:
        ValueError: there are sites, and the run-time system runs already.
    """
    options: RtsOptions = {"cores": cores, "connection_file": files, "data_bytes": data_bytes}
    if sites is None:
        return options
    if is_running:
        raise ValueError(
            "sites have no meaning beside a running run-time system: add them with gspc-rts site add"
        )
    return {**options, "sites": sites}


def layer_at(iml: Path | str | None) -> DataLayer | None:
    """Return the memory layer whose connection file this is, None if there is none."""
    if iml is None:
        return None
    from gspc_trio.iml.shell.layer import published_layer  # only here: few need it

    return published_layer(Path(iml))


def cache_settings(cache: CacheSettings | Path | str | None) -> CacheSettings | None:
    """Return the settings of a cache; None: there is none.

    Raises:
        TypeError: it is neither a directory nor settings.
    """
    if cache is None:
        return None
    from gspc_trio.components.job.cache import CacheSettings

    if isinstance(cache, CacheSettings):
        return cache
    if not isinstance(cache, str | Path) or not str(cache):
        raise TypeError(f"cache must be the name of a directory or CacheSettings, not {cache!r}")
    return CacheSettings(str(cache))


def initializer_code(initializer: Callable[..., object] | None, initargs: Iterable[object]) -> bytes:
    """Return the code that is called in each process first, b"" for none.

    Raises:
        BadCode: it cannot be sent to another process.
        TypeError: it cannot be called.
    """
    if initializer is None:
        return b""
    if not callable(initializer):
        raise TypeError("initializer must be a callable")
    arguments = tuple(initargs)
    return function_code(partial(initializer, *arguments) if arguments else initializer)


def checked_bytes_min(large_bytes_min: SupportsIndex | None) -> int | None:
    """Return from how many bytes on values go into the memory layer.

    Raises:
        TypeError, ValueError: it is no whole number, or not positive.
    """
    return None if large_bytes_min is None else checked_count("large_bytes_min", large_bytes_min)


_HAS_ITS_OWN = (
    "{} is for a run-time system that the executor starts; one that runs has as many workers as resources: "
    "leave it out"
)


def _refuse_beside(name: str, **given: object) -> None:
    """Raise TypeError if something is given that is settled by the argument ``name``."""
    for other, value in given.items():
        if value:
            raise TypeError(f"{other} is an option of open_rts; {name} is open already: leave {other} out")


def checked_workers(
    max_workers: SupportsIndex | None, cores: int, is_running: bool, mp_context: object
) -> int:
    """Return the number of cores to offer, 0 for what there is.

    Args:
        max_workers: as the standard library calls it.
        cores: as everything else here calls it.
        is_running: whether the run-time system runs already.
        mp_context: how the standard library is told to start its processes.

    Raises:
        TypeError: both are given, or ``max_workers`` is no whole number.
        ValueError: ``max_workers`` is not positive, or the run-time system has its own; there is a context.
    """
    if mp_context is not None:
        raise ValueError(
            "mp_context has no meaning here: compute processes are forked from a fresh interpreter that has "
            "never seen this program, and have no thread, lock or open file of it; leave it out"
        )
    if max_workers is None:
        if cores and is_running:
            raise ValueError(_HAS_ITS_OWN.format(f"cores={cores}"))
        return cores
    if not isinstance(max_workers, SupportsIndex):
        raise TypeError(f"max_workers is a whole number, None for what this machine has, not {max_workers!r}")
    if (number := index(max_workers)) <= 0:
        raise ValueError(f"max_workers must be greater than 0, not {number}")
    if cores:
        raise TypeError(f"max_workers={number} and cores={cores} say the same: give one of them")
    if is_running:
        raise ValueError(_HAS_ITS_OWN.format(f"max_workers={number}"))
    return number


def _refuse_file(rts: object) -> None:
    """Raise TypeError if a run-time system is the name of a file, or something else."""
    if isinstance(rts, str | Path):
        raise TypeError(f"rts is what open_rts has opened; a file is connection_file={str(rts)!r}")
    if not hasattr(rts, "home"):
        raise TypeError(f"rts is what open_rts has opened, not {rts!r}")


def check_other_thread(rts: RunTimeSystem) -> tuple[trio.lowlevel.TrioToken, trio.Nursery]:
    """Return the home of a run-time system in whose thread an executor is to run.

    Raises:
        RuntimeError: it runs in this thread.
        TypeError: nobody has opened it in a thread of this program.
    """
    import trio

    if rts.home is None:
        raise TypeError("rts is a run-time system that open_rts has opened in a thread of this program")
    token, _ = rts.home
    if trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is token:
        raise RuntimeError(
            "Executor(rts=...) blocks, and this is the thread in which the run-time system runs: use it "
            "in another one (await trio.to_thread.run_sync(function, rts)), or use open_job here"
        )
    return rts.home
