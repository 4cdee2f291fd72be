"""Scripts of jobs of a study: a process runs in its environment, and its exit status goes to a file."""

from __future__ import annotations

import shlex

from gspc_trio.components.launcher.study_job import VARIABLES, JobProcess, StudyJob
from gspc_trio.components.provision.batch import BATCH_ID_VARIABLE, Command

_TELL = """
status=$?
echo $status >{status}.part && mv -f {status}.part {status}
"""
"""Whoever finds the file finds all of it."""


def describe_job(job: StudyJob) -> str:
    """Return what a job runs, for people."""
    if job.is_server:
        return f"server {job.incarnation}"
    ids = ", ".join(str(process.client_id) for process in job.processes)
    return f"client {ids}" if len(job.processes) == 1 else f"clients {ids}"


def script_head(job: StudyJob, batch_id: str) -> str:
    """Return the first lines of each script of a job.

    The shell outlives a signal that is for all of the job, so that it can tell how its process has ended.

    Args:
        job: to run.
        batch_id: the id of the job, in which variables of the shell are replaced.
    """
    return (
        f"#!/bin/sh\n# job {job.name} of gspc-launcher: {describe_job(job)}\n"
        "trap : HUP INT TERM\n"
        f"unset {' '.join(VARIABLES)}\n"
        f'export {BATCH_ID_VARIABLE}="{batch_id}"\n'
        f"cd {shlex.quote(job.work_dir)} || exit\n"
    )


def run_lines(process: JobProcess, starter: Command = (), redirect: bool = True) -> str:
    """Return lines that run a process, and tell its exit status; it is in ``$status`` then.

    Args:
        process: to run.
        starter: the command that starts it, and its arguments.
        redirect: whether to send what it prints to its files.
    """
    lines = [f"export {name}={shlex.quote(value)}" for name, value in process.environment.items()]
    command = shlex.join([*starter, *process.command])
    if redirect:
        command += f" >{shlex.quote(process.output)} 2>{shlex.quote(process.errors)}"
    return "\n".join([*lines, f"{command} </dev/null"]) + _TELL.format(status=shlex.quote(process.status))


def process_script(
    job: StudyJob, process: JobProcess, batch_id: str, starter: Command = (), redirect: bool = True
) -> str:
    """Return the script that runs one process of a job; see :func:`script_head` and :func:`run_lines`."""
    return f"{script_head(job, batch_id)}{run_lines(process, starter, redirect)}exit $status\n"
