"""The results of a run in a file: what ``--output`` keeps, and where results are when a report has failed."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from gspc_trio.cli.common import CommandError, print_json
from gspc_trio.components.job.shell.journal import Journal
from gspc_trio.records.shell.records_file import check_records_file


def check_results_file(path: Path) -> None:
    """Raise an error now, not after hours of work, when a file cannot be written.

    Raises:
        CommandError: it is a directory, or its directory is not there, or nobody may write there.
    """
    if path.is_dir():
        raise CommandError(f"--output {path}: this is a directory: name a file")
    if not path.parent.is_dir():
        raise CommandError(f"--output {path}: there is no directory {path.parent}")
    is_device = path.exists() and not path.is_file()
    if not os.access(path if is_device else path.parent, os.W_OK):
        what = "it" if is_device else f"the directory {path.parent}"
        raise CommandError(f"--output {path}: you may not write to {what}")


def write_results(results: dict[str, object], path: Path) -> None:
    """Write results as JSON; the file of before stays until all of it is written. A device or pipe stays.

    Raises:
        CommandError: the disk does not take it, or JSON cannot have it.
    """
    if path.exists() and not path.is_file():
        try:
            with path.open("w") as file:
                print_json(results, file)
        except OSError as error:
            raise CommandError(f"the results cannot be written to {path}: {error.strerror}") from error
        return
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "w") as file:
            print_json(results, file)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(name)
        raise CommandError(f"the results cannot be written to {path}: {error.strerror}") from error
    except BaseException:
        os.unlink(name)
        raise


def is_written(results: dict[str, object], path: Path) -> bool:
    """Write results to a file; say so if that cannot be, which must not cost what is printed."""
    try:
        write_results(results, path)
    except CommandError as error:
        print(f"gspc-jobserver: {error}", file=sys.stderr)
        return False
    return True


def check_records(path: Path) -> None:
    """Fail now, not after minutes of work, when records cannot be written.

    Raises:
        CommandError: why.
    """
    try:
        check_records_file(path)
    except OSError as error:
        raise CommandError(f"--records {path}: {error.strerror}") from error


def where_results_are(kept: Path | None, journal: Journal | None) -> str:
    """Return where the results of a run are, whose report has failed."""
    if kept is not None:
        return f"the results are in {kept}"
    if journal is not None:
        return f"the results are in the journal: gspc-jobserver resume {journal.name} --json prints them"
    return "the results are printed without it; --output FILE or --journal DIRECTORY keeps them"
