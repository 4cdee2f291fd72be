"""Scripts of jobs of a study: a process runs in its environment, and its exit status goes to a file."""

from __future__ import annotations

import shlex

from attrs import frozen

from gspc_trio.components.launcher.study_job import VARIABLES, JobProcess, StudyJob
from gspc_trio.components.provision.batch import BATCH_ID_VARIABLE, Command

_TELL = """
echo $status >{status}.part && mv -f {status}.part {status}
"""
"""Whoever finds the file finds all of it."""

_WITNESS = '"$@"; said=$?; [ $said != 0 ] || : >"$0.$SLURM_PROCID.$SLURM_STEP_NUM_TASKS"; exit $said'
"""Runs a task of ``srun``, which leaves a file if it ends well."""

_HEAR_WITNESSES = """
if [ $status = 0 ]; then
    : >{path}  # so that a network file system shows what is there now
    set -- {path}.*
    [ -e "$1" ] && [ $# -ge "${{1##*.}}" ] || status=1
fi
rm -f {path} {path}.*
"""
"""``srun`` says 0, too, when it has lost the node of a task."""


@frozen
class Starter:
    """What starts a process in a job.

    Attributes:
        command: program and arguments before those of the process.
        is_srun: whether it is ``srun``, whose exit status 0 is not taken for a success.
    """

    command: Command = ()
    is_srun: bool = False


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


def run_lines(process: JobProcess, starter: Starter, redirect: bool = True) -> str:
    """Return lines that run a process, and tell its exit status; it is in ``$status`` then.

    Args:
        process: to run.
        starter: starts it.
        redirect: whether to send what it prints to its files.
    """
    lines = [f"export {name}={shlex.quote(value)}" for name, value in process.environment.items()]
    witnesses = f"{process.path}.ended"
    between = ("/bin/sh", "-c", _WITNESS, witnesses) if starter.is_srun else ()
    command = shlex.join([*starter.command, *between, *process.command])
    if redirect:
        command += f" >{shlex.quote(process.output)} 2>{shlex.quote(process.errors)}"
    heard = _HEAR_WITNESSES.format(path=shlex.quote(witnesses)).lstrip() if starter.is_srun else ""
    told = _TELL.format(status=shlex.quote(process.status)).lstrip()
    return "\n".join([*lines, f"{command} </dev/null", "status=$?", heard + told])


def process_script(
    job: StudyJob, process: JobProcess, batch_id: str, starter: Starter, redirect: bool = True
) -> str:
    """Return the script that runs one process of a job; see :func:`script_head` and :func:`run_lines`."""
    return f"{script_head(job, batch_id)}{run_lines(process, starter, redirect)}exit $status\n"
