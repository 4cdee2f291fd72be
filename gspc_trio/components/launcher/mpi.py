"""Scripts of jobs that ``mpiexec`` of Open MPI starts: a group is one, with colons (seen with 4.1.4)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from gspc_trio.components.launcher.group import CANCELLED_STATUS, END_WHEN_CANCELLED, tell_status_left
from gspc_trio.components.launcher.script import Starter, run_lines, script_head
from gspc_trio.components.launcher.study_job import JobProcess, StudyJob
from gspc_trio.components.provision.batch import BATCH_ID_VARIABLE, Command

_GROUP = ("--enable-recovery", "--mca", "orte_abort_on_non_zero_status", "0", "--bind-to", "none")
"""A rank that ends, or is killed, ends no other."""

_RANK = """
status={cancelled_status}
if [ ! -e {path}.cancel ]; then
    {command} >>{output} 2>>{errors} </dev/null &
    process=$!
    trap 'kill -s TERM $process' HUP INT TERM
    end_when_cancelled {path} $process >/dev/null 2>&1 &
    watcher=$!
    wait_for $process
    kill $watcher
fi
own={path}.rank.$OMPI_COMM_WORLD_RANK
echo $status >$own.part && mv -f $own.part $own
worst=0 told=0
for rank in {path}.rank.*[0-9]; do
    read -r said <$rank && told=$((told + 1))
    [ "$said" -le $worst ] || worst=$said
done
# The last rank of a client tells the worst exit status of all of them.
if [ $told -ge $((OMPI_COMM_WORLD_SIZE / {clients})) ]; then
    echo $worst >$own.worst && mv -f $own.worst {path}.status
fi
exit $status
"""


_END_RANKS = """
ranks() { ps -o pid=,pgid= -s $$ | while read -r pid group; do [ "$group" -eq $$ ] || echo "$pid"; done; }
for signal in TERM TERM TERM TERM TERM TERM TERM TERM KILL; do
    left=$(ranks)
    [ "$left" ] || break
    kill -s $signal $left
    sleep 0.2
done
"""
"""What ``mpiexec`` leaves in the session of the script; it does not always end its ranks."""


def mpi_script(
    job: StudyJob, batch_id: str, arguments: Command = (), redirect: bool = True
) -> tuple[str, dict[str, str]]:
    """Return the script of a job that ``mpiexec`` starts, and the files that it needs: path -> content.

    Args:
        job: to run; each of its clients has as many ranks as the options say, one if they say nothing.
        batch_id: the id of the job, in which variables of the shell are replaced.
        arguments: of ``mpiexec`` for all that it starts.
        redirect: whether to send what the only process prints to its files.
    """
    program, *options = job.starter(("mpiexec",))
    if len(job.processes) == 1:
        told = [f for name in (*job.processes[0].environment, BATCH_ID_VARIABLE) for f in ("-x", name)]
        line = (program, *arguments, "-n", "1", *options, *told)
        run = run_lines(job.processes[0], Starter(line), redirect)
        return f"{script_head(job, batch_id)}{run}{_END_RANKS.lstrip()}exit $status\n", {}
    contexts = [("-n", "1", *options, "/bin/sh", one.script) for one in job.processes]
    started = shlex.join([program, *_GROUP, "-x", BATCH_ID_VARIABLE, *arguments, *_with_colons(contexts)])
    ranks = " ".join(f"{shlex.quote(one.path)}.rank.*" for one in job.processes)
    files = {one.script: script_head(job, f"${BATCH_ID_VARIABLE}") + _rank(job, one) for one in job.processes}
    head = f"{script_head(job, batch_id)}rm -f {ranks}\n"
    left = f"status=$?\n{_END_RANKS.lstrip()}rm -f {ranks}\n[ $status != 0 ] || status=1\n"
    return f"{head}{started} </dev/null\n{left}{tell_status_left(job.processes)}", files


def _with_colons(contexts: list[Command]) -> Iterator[str]:
    for number, context in enumerate(contexts):
        yield from (":",) if number else ()
        yield from context


def _rank(job: StudyJob, process: JobProcess) -> str:
    """Return the lines that each rank of a client runs."""
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in process.environment.items())
    return (
        exports
        + END_WHEN_CANCELLED.lstrip()
        + _RANK.lstrip().format(
            path=shlex.quote(process.path),
            command=shlex.join(process.command),
            output=shlex.quote(process.output),
            errors=shlex.quote(process.errors),
            cancelled_status=CANCELLED_STATUS,
            clients=len(job.processes),
        )
    )
