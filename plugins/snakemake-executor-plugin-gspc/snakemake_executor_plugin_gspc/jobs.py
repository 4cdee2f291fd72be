"""Runs jobs of Snakemake in compute processes: nothing here is called in the process of the workflow."""

from __future__ import annotations

import atexit
import gc
import importlib
import multiprocessing
import os
import resource
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from gspc_trio.compute.folders import Folders

IMPORTED = ("smart_open", "yaml", "graphlib", "snakemake.storage")
"""What each job imports when it runs, beside what ``snakemake.cli`` imports; those that are there."""


OWN_BYTES = 256 << 20
"""Memory that Snakemake may take in a job for itself, beside what the job states: its threads have 8 MiB
each."""


class JobCommand(NamedTuple):
    """A job as Snakemake has it run.

    Attributes:
        line: the command, for a shell.
        words: arguments of Snakemake's ``main``; None: only a shell can run it.
        directory: in which it runs.
        environment: variables for it, beside those of its host.
        log: file for what it prints.
    """

    line: str
    words: list[str] | None
    directory: str
    environment: dict[str, str]
    log: str


class NotShared(Exception):
    """A host does not have the directory of the workflow."""


def import_snakemake() -> None:
    """Import what jobs need, so that those forked from this process need not."""
    from snakemake import cli

    cli.get_argument_parser()  # finds the plugins, which is half of what an empty job would do
    for name in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # forks do not copy it because of the collector's marks


def run_job(job: JobCommand) -> int:
    """Run a job to its end; return its exit status, or minus the number of the signal that ended it.

    Raises:
        NotShared: this host does not have the directory of the workflow.
    """
    try:
        os.stat(job.directory)
        log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise NotShared(
            f"host {socket.gethostname()} cannot use {error.filename}: {error.strerror}. "
            "The workflow needs a file system that all hosts share, at the same place."
        ) from None
    _allow(OWN_BYTES)
    try:
        temporary = _folders().make()
        environment = {"TMPDIR": temporary.path, **job.environment}
        try:
            return (_spawn if job.words is None else _fork)(job, environment, log)
        finally:
            temporary.remove()
    finally:
        os.close(log)


def _allow(more_bytes: int) -> None:
    """Raise the limit of memory, if there is one; when the task has ended it is as before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft != resource.RLIM_INFINITY:
        soft += more_bytes
        limit = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


@cache
def _folders() -> Folders:
    """Directories for temporary files of jobs: what a killed one has left is removed later."""
    return Folders()


def _spawn(job: JobCommand, environment: dict[str, str], log: int) -> int:
    return subprocess.call(
        job.line,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=job.directory,
        env={**os.environ, **environment},
    )


def _fork(job: JobCommand, environment: dict[str, str], log: int) -> int:
    process = multiprocessing.get_context("fork").Process(target=_main, args=(job, environment, log))
    process.start()
    process.join()
    status = process.exitcode
    process.close()
    assert status is not None
    return status


def _main(job: JobCommand, environment: dict[str, str], log: int) -> None:
    """Be ``python -m snakemake`` in this fork."""
    from snakemake import cli

    atexit._clear()  # what was to be done at the end of another process
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # none of them is the job's
    os.chdir(job.directory)
    os.environ.update(environment)
    tempfile.tempdir = None  # to be looked up in the environment again
    sys.argv = ["snakemake", *(job.words or ())]
    sys.path.insert(0, job.directory)
    try:
        cli.main(job.words)
    finally:
        atexit._run_exitfuncs()
