"""Processes of one host as batch jobs: for trying out, and for hosts without a batch system.

A job is the leader of a session of its own, which outlives who has started it. Its last argument has its
name, by which it is found in the list of the processes of the user (``ps`` of procps).
"""

from __future__ import annotations

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    BatchState,
    Command,
    CommandResult,
    Provider,
    QueryFailed,
    on_node,
)

_MARK = "gspc-job="
"""The last argument of a job begins so."""

_SUBMIT = (
    'setsid timeout --kill-after=5 "$1" /bin/sh "$2/script" "gspc-job=$3" </dev/null >>"$4" 2>&1 & echo $!'
)
_LIST = 'ps -ww -o pid=,sess=,stat=,args= -U "$(id -u)" && echo "seen $1"'
"""The last line says that the list is whole, and which job was asked for."""

_END = """
for leader in $leaders; do
    kill -s TERM -- "-$leader"
    for signal in TERM KILL; do
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
            [ -n "$(ps -o pid= -s "$leader")" ] || continue 3
            sleep 0.1
        done
        kill -s "$signal" $(ps -o pid= -s "$leader")
    done
done
"""
"""What the leader leaves in its session ends, too: an ``mpiexec`` does not always end its ranks."""

_CANCEL = f"""
find() {{ ps -ww -o pid=,sess=,args= -U "$(id -u)" | while read -r pid session args; do
    case "$args" in *" gspc-job=$1") [ "$pid" != "$session" ] || echo "$pid";; esac
done; }}
leaders=$(find "$1")
{_END}"""


def job_mark(name: str) -> str:
    """Return the last argument of a process that is to be found as the job of this name."""
    return _MARK + name


def end_session(leader: int) -> Command:
    """Return the command that ends a process, and all that is in the session which it leads."""
    return ("/bin/sh", "-c", f'leaders="$1"\n{_END}', "sh", str(leader))


class LocalProvider(Provider):
    """Processes of one host; a job of several "nodes" has so many processes here."""

    name = "local"
    is_here = True

    def submit(self, request: BatchRequest) -> Command:
        """See Provider."""
        if request.queue or request.account:
            raise BadRequest(f"{self.name} has no queues and no accounts")
        self._check_arguments(request)
        details = (str(request.time_s), request.folder, request.name, request.output)
        return ("/bin/sh", "-c", _SUBMIT, "sh", *details)

    def _check_arguments(self, request: BatchRequest) -> None:
        if request.arguments:
            raise BadRequest(f"{self.name} has no command for which there could be arguments")

    def submitted(self, result: CommandResult) -> str | None:
        """See Provider."""
        found = result.output.strip()
        return found if found.isdigit() else None

    def launch(self, request: BatchRequest, command: str) -> str:
        """See Provider."""
        started = [f"({on_node(command, str(node), '$PPID')}) &" for node in range(request.nodes)]
        return "\n".join([*started, "wait"])

    def query(self, job_id: str = "") -> Command:
        """See Provider."""
        return ("/bin/sh", "-c", _LIST, "sh", job_id)

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        """See Provider."""
        *lines, last = result.output.splitlines() or [""]
        if result.status or not last.startswith("seen "):
            raise QueryFailed(result.words)
        asked = last.removeprefix("seen ")
        found = [job for job in map(_job, lines) if job is not None and asked in ("", job.job_id)]
        if asked and not found:
            return (BatchJob(asked, "", BatchState.ENDED, "its process has ended"),)
        return tuple(found)

    def cancel(self, job_id: str, name: str) -> Command:
        """See Provider."""
        del job_id  # another process may have the number by now
        return ("/bin/sh", "-c", _CANCEL, "sh", name)


def _job(line: str) -> BatchJob | None:
    """Return the job of a line of the list; None if it is another process."""
    parts = line.split(None, 3)
    if len(parts) < 4 or parts[0] != parts[1]:
        return None
    name = parts[3].rpartition(" ")[2]
    if not name.startswith(_MARK):
        return None
    where = BatchState.HELD if parts[2][0] in "Tt" else BatchState.RUNNING
    reason = "its process is stopped" if where is BatchState.HELD else ""
    return BatchJob(parts[0], name.removeprefix(_MARK), where, reason)
