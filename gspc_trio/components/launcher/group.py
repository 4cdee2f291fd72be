"""Groups: one script runs several clients side by side, each with its own state, output and end."""

from __future__ import annotations

import shlex

from gspc_trio.components.launcher.script import Starter, process_script, script_head
from gspc_trio.components.launcher.study_job import JobProcess, StudyJob

CANCELLED_STATUS = 143
"""Exit status of a client that was cancelled before it began: that of a process that SIGTERM has ended."""

END_WHEN_CANCELLED = """
end_when_cancelled() {
    while sleep 1 && kill -s 0 "${2#-}" 2>/dev/null; do
        [ -e "$1.cancel" ] || continue
        kill -s TERM -- "$2"
        for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 1; done
        kill -s KILL -- "$2"
        return
    done
}
wait_for() {
    while :; do
        wait "$1"
        status=$?
        kill -s 0 "$1" 2>/dev/null || return $status
    done
}
"""
"""A process that is told to end has ten seconds for it. A signal ends ``wait``, but not the process.

Who watches a process ends with it by itself: a signal that comes before its shell has begun may be lost.
"""

_WATCH = """
watch() {
    trap : HUP INT TERM
    status=CANCELLED
    if [ ! -e "$1.cancel" ]; then
        setsid /bin/sh "$1.sh" </dev/null &
        leader=$!
        end_when_cancelled "$1" "-$leader" >/dev/null 2>&1 &
        watcher=$!
        wait_for $leader
        kill $watcher
    fi
    [ -e "$1.status" ] || { echo $status >"$1.status.part" && mv -f "$1.status.part" "$1.status"; }
}
"""


def group_script(job: StudyJob, batch_id: str, starter: Starter) -> tuple[str, dict[str, str]]:
    """Return the script of a job of several clients, and the files that it needs: path -> content.

    Each client runs in a session of its own, and the script ends when all have ended. A client for which the
    file :attr:`JobProcess.cancel` appears is ended, while the others go on.

    Args:
        job: to run.
        batch_id: the id of the job, in which variables of the shell are replaced.
        starter: starts each client.
    """
    files = {one.script: process_script(job, one, batch_id, starter) for one in job.processes}
    watch = END_WHEN_CANCELLED.lstrip() + _WATCH.replace("CANCELLED", str(CANCELLED_STATUS)).lstrip()
    watched = "".join(f"watch {shlex.quote(one.path)} &\n" for one in job.processes)
    # A signal ends "wait", but not the clients' own scripts, which tell how they have ended.
    return f"{script_head(job, batch_id)}{watch}{watched}until wait; do :; done\n", files


def job_script(job: StudyJob, batch_id: str, starter: Starter) -> tuple[str, dict[str, str]]:
    """Return the script of a job, of a group or of one process, and the files that it needs."""
    if len(job.processes) > 1:
        return group_script(job, batch_id, starter)
    return process_script(job, job.processes[0], batch_id, starter, redirect=False), {}


def tell_status_left(processes: tuple[JobProcess, ...]) -> str:
    """Return lines that tell ``$status`` for each process that has not told its own exit status."""
    lines = [
        f"[ -e {status} ] || {{ echo $status >{status}.part && mv -f {status}.part {status}; }}\n"
        for status in (shlex.quote(one.status) for one in processes)
    ]
    return "".join(lines)
