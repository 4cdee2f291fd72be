"""What is kept for later runs: the options of ``run`` and ``resume``, caches of results, performance models.

``gspc-jobserver cache list|clear``, ``gspc-jobserver model show|merge|forget``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from gspc_trio.cli.arguments import CacheSize, Directory, MaybeDirectory
from gspc_trio.cli.common import CommandError, UsageError, explain, print_json
from gspc_trio.components.job.cache import CacheSettings, CompareFiles
from gspc_trio.components.job.scheduler.interface import RunKey
from gspc_trio.components.job.shell.cache_files import CacheDirectory
from gspc_trio.components.job.shell.model_file import ModelFile, change_file, read_file
from gspc_trio.core.similar import did_you_mean
from gspc_trio.iml.quota import parse_size
from gspc_trio.policies.model_text import BadModel
from gspc_trio.policies.performance_model import PerformanceModel, Stated, merged

SIZE = "10GiB"
"""Size of a cache about which nothing is said."""

cache_app: App = App(name="cache", help="Look at a cache of results, or empty it.")

model_app: App = App(name="model", help="Look at a file of run times, merge others into it, or forget some.")

CachePath = Annotated[Directory, Parameter(help="The directory that was given to --cache.")]
Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON on standard output, not text.")]


@Parameter(name="*")
@dataclass(frozen=True)
class CacheOptions:
    """The options of a run that say where results and run times are kept."""

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
    model: Annotated[
        Path | None,
        Parameter(
            help="Read from this file how long variants of tasks run, and keep what is learned there; it is "
            "made if it is not there."
        ),
    ] = None


Caching = Annotated[CacheOptions | None, Parameter(name="*")]


def cache_option(stated: CacheOptions | None) -> CacheSettings | None:
    """Return what a job is told of its cache, None: it has none.

    Raises:
        CacheError: the directory cannot be used: it is better said before anything is started.
        UsageError: there is something to say of a cache, but no directory.
    """
    if stated is None:
        return None
    if stated.cache is None and (stated.cache_size, stated.cache_files) == (SIZE, "auto"):
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


def model_option(stated: CacheOptions | None) -> str:
    """Return the file in which a job keeps run times, "" if there is none.

    Raises:
        CommandError: it cannot be used: it is better said before anything is started.
    """
    if stated is None or stated.model is None:
        return ""
    try:
        ModelFile(stated.model)
    except (BadModel, OSError) as error:
        raise CommandError(f"--model: {explain(error)}") from None
    return str(stated.model.resolve())


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


ModelPath = Annotated[Path, Parameter(help="The file that was given to --model.")]


@model_app.command
def show(file: ModelPath, *, json: Json = False) -> None:
    """Show the run times in a file, a line for each size."""
    rows = _rows(read_file(file))
    if json:
        print_json(rows)
        return
    print(f"{'TASK':<24}{'CLASS':<9}{'SIZE':>17}  {'RUNS':>11}  {'FROM':<22}PROCESSOR")
    for row in rows:
        name = f"{row['code']}[{row['variant']}]"[:23]
        start = f"{name:<24}{row['class'] or 'any':<9}{row['size']:>17}  {row['runs']:>11}"
        print(f"{start}  {row['from']:<22}{row['processor']}".rstrip())


def _rows(model: PerformanceModel) -> list[dict[str, Any]]:
    """Return what is known, a row for each time, as plain data."""
    rows = []
    for stated, run_s in model.stated.items():
        processor = "any" if stated.processor is None else stated.processor
        size = "any" if stated.size is None else stated.size
        rows.append(_row(stated, processor, size, f"{run_s:.4g} s", "stated", run_s=run_s))
    for key, curve in model.curves.items():
        for size, mean in curve.means.items():
            errors = f", {mean.errors} off" if mean.errors else ""
            facts = {"run_s": mean.mean_s, "samples": mean.samples, "errors": mean.errors}
            origin = f"{mean.samples} sample{'s' if mean.samples > 1 else ''}{errors}"
            rows.append(_row(key, key.processor, size, f"{mean.mean_s:.4g} s", origin, **facts))
        law, exponent = curve.law, curve.law.exponent()
        if exponent is not None:
            sizes = f"{law.smallest:.0f} to {law.largest:.0f}"
            facts = {"exponent": exponent, "samples": law.samples}
            rows.append(_row(key, key.processor, sizes, f"~size^{exponent:.2f}", "a power law", **facts))
    return sorted(
        rows, key=lambda row: [str(row[name]) for name in ("code", "variant", "class", "processor")]
    )


def _row(
    key: RunKey | Stated, processor: str, size: int | str, runs: str, origin: str, **facts: float
) -> dict[str, Any]:
    names = {"code": key.code, "variant": key.variant, "class": key.resource_class, "processor": processor}
    return {**names, "size": size, "runs": runs, "from": origin, **facts}


@model_app.command
def merge(
    file: ModelPath, *others: Annotated[Path, Parameter(help="Files whose run times are added.")]
) -> None:
    """Add the run times of other files to a file, which is made if it is not there."""
    if not others:
        raise UsageError("gspc-jobserver model merge FILE OTHER...: it is not said what is merged into FILE")
    added = PerformanceModel()
    for other in others:
        added = merged(PerformanceModel(), read_file(other), added)
    change_file(file, lambda before: merged(PerformanceModel(), added, before))


@model_app.command
def forget(
    file: ModelPath,
    code: Annotated[str, Parameter(help="Name of the tasks, without the bracket.")],
    *,
    variant: Annotated[str | None, Parameter(help="Only of this variant.")] = None,
) -> None:
    """Forget the run times of a code; a job that runs may add new ones."""
    counts: list[int] = []

    def without(model: PerformanceModel) -> PerformanceModel:
        counts.append(model.forget(code, variant))
        return model

    found = read_file(file)
    known = {key.code for keys in (found.stated, found.curves) for key in keys}
    if code not in known:
        raise CommandError(f"{file} has no run times of {code!r}{did_you_mean(code, known)}")
    change_file(file, without)
    print(f"{counts[-1]} run {'time' if counts[-1] == 1 else 'times'} forgotten")
