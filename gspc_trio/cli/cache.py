"""Caches of results: the options of ``run`` and ``resume``, and ``gspc-jobserver cache list|clear``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from cyclopts import App, Parameter

from gspc_trio.cli.arguments import CacheSize, Directory, MaybeDirectory
from gspc_trio.cli.common import UsageError, print_json
from gspc_trio.components.job.cache import CacheSettings, CompareFiles
from gspc_trio.components.job.shell.cache_files import CacheDirectory
from gspc_trio.iml.quota import parse_size

SIZE = "10GiB"
"""Size of a cache about which nothing is said."""

cache_app: App = App(name="cache", help="Look at a cache of results, or empty it.")

CachePath = Annotated[Directory, Parameter(help="The directory that was given to --cache.")]
Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON on standard output, not text.")]


@Parameter(name="*")
@dataclass(frozen=True)
class CacheOptions:
    """The options of a run that say where results are kept."""

    cache: Annotated[
        MaybeDirectory,
        Parameter(
            help="Keep results in this directory, and do not compute again what is there: the same code with "
            "the same arguments and files."
        ),
    ] = None
    cache_size: Annotated[
        CacheSize,
        Parameter(help="What the cache has at most; results that were not used for longest go first."),
    ] = SIZE
    cache_files: Annotated[
        CompareFiles,
        Parameter(
            help="How files are compared: by content, by modification time and size, or (auto) by content up "
            "to 64 MiB and by time beyond."
        ),
    ] = "auto"


Caching = Annotated[CacheOptions | None, Parameter(name="*")]


def cache_option(stated: CacheOptions | None) -> CacheSettings | None:
    """Return what a job is told of its cache, None: it has none.

    Raises:
        CacheError: the directory cannot be used: it is better said before anything is started.
        UsageError: there is something to say of a cache, but no directory.
    """
    if stated is None:
        return None
    if stated.cache is None:
        raise UsageError("--cache-size and --cache-files say how a cache is: give --cache DIR, too")
    size_bytes = parse_size(stated.cache_size)
    if not size_bytes:
        raise UsageError(
            f"--cache-size {stated.cache_size}: nothing has room there; without --cache nothing is kept"
        )
    CacheDirectory(stated.cache).close()
    return CacheSettings(str(stated.cache.resolve()), size_bytes, stated.cache_files)


@cache_app.command(name="list")
def list_entries(directory: CachePath, *, json: Json = False) -> None:
    """List the results in a cache, those first that were not used for longest."""
    entries = CacheDirectory(directory, make=False)
    rows = [(file, entry) for file in entries.entries() if (entry := entries.look_at(file.name)) is not None]
    entries.close()
    if json:
        print_json(
            [
                {
                    "task": entry.name,
                    "size_bytes": file.size_bytes,
                    "duration_s": entry.duration_s,
                    "used_s": file.used_s,
                    "key": file.name,
                }
                for file, entry in rows
            ]
        )
        return
    print(f"{'TASK':<32}{'BYTES':>12}{'TOOK':>11}  {'LAST USED':<20}")
    for file, entry in rows:
        used = datetime.fromtimestamp(file.used_s).strftime("%Y-%m-%d %H:%M:%S")
        print(f"{entry.name[:31]:<32}{file.size_bytes:>12}{entry.duration_s:>9.2f} s  {used}")
    size_bytes = sum(file.size_bytes for file, _ in rows)
    print(f"{len(rows)} {'result' if len(rows) == 1 else 'results'}, {size_bytes} bytes")


@cache_app.command
def clear(directory: CachePath, *, json: Json = False) -> None:
    """Remove all results from a cache; runs that use it go on."""
    entries = CacheDirectory(directory, make=False)
    number, size_bytes = entries.clear()
    entries.close()
    if json:
        print_json({"results": number, "size_bytes": size_bytes})
    else:
        print(f"{number} {'result' if number == 1 else 'results'} removed, {size_bytes} bytes")
