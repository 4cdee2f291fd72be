"""``oar-hybrid``: a container of OAR holds the server and some clients; others are best effort.

Each server is submitted with a container of its own, a job of OAR in whose resources other jobs run. It ends
soon after its server, however that ends. A client goes to the container while fewer than
``container_client_size`` jobs of clients are there. Of the others, one in ``besteffort_allocation_frequency``
is best effort: OAR ends it when someone else needs its resources. The rest waits in the container.
"""

from __future__ import annotations

import shlex

from attrs import evolve

from gspc_trio.components.launcher.adapter import IndirectStart
from gspc_trio.components.launcher.adapters.oar import OarAdapter
from gspc_trio.components.launcher.options import BadOption, LauncherOptions
from gspc_trio.components.launcher.study_job import StudyJob
from gspc_trio.components.provision.batch import (
    BatchJob,
    BatchRequest,
    BatchState,
    Command,
    CommandResult,
)
from gspc_trio.components.provision.providers.oar import OarProvider

_CONTAINER = """#!/bin/sh
# container of the job {name} of gspc-launcher, whose server says every ten seconds that it is alive
silent=0 patience=600
while [ $silent -lt $patience ] && [ ! -e {status} ]; do
    sleep 1
    silent=$((silent + 1))
    [ ! -e {alive} ] || {{ rm -f {alive}; silent=0 patience=60; }}
done
"""
"""It waits for long until the server runs, and not for long when nothing is heard of it any more."""

_ALIVE = """#!/bin/sh
(while kill -s 0 $$; do touch {alive}; sleep 10; done) >/dev/null 2>&1 &
"""

_SUBMIT_SERVER = """
said=$({container}) || {{ status=$?; printf '%s\\n' "$said"; exit $status; }}
container=$(printf '%s\\n' "$said" | sed -n 's/^OAR_JOB_ID=//p')
[ "$container" ] || exit 0
echo "$container" >{file}.part && mv -f {file}.part {file}
oarsub -t "inner=$container" {server} || {{ status=$?; oardel "$container" >&2; exit $status; }}
"""
"""Without the id of the container it is not clear whether there is one; it is cancelled by its name."""

_SUBMIT_INNER = 'container=$(cat "$1") && shift && exec oarsub -t "inner=$container" "$@"'


def container_name(name: str) -> str:
    """Return the name of the container of a server."""
    return f"{name}-container"


class _Jobs(OarProvider):
    """OAR, for servers with containers.

    Attributes:
        inside: names of the jobs of clients in containers that are not known to be over.
    """

    def __init__(self) -> None:
        self.inside: set[str] = set()

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        """See Provider."""
        jobs = super().told(result)
        self.inside -= {job.name for job in jobs if job.state is BatchState.ENDED}
        return jobs

    def cancel(self, job_id: str, name: str) -> Command:
        """See Provider; a container is cancelled with its server."""
        del job_id
        return ("oardel", "--sql", f"job_name = '{name}' OR job_name = '{container_name(name)}'")


class OarHybridAdapter(OarAdapter):
    """Batch jobs of OAR in a container, or best effort."""

    name = "oar-hybrid"
    jobs_per_server = 2

    def __init__(self) -> None:
        self._jobs = _Jobs()
        super().__init__(self._jobs)
        self._beyond = 0
        """Number of jobs of clients for which the container had no place."""

    def check(self, options: LauncherOptions) -> None:
        """See Adapter."""
        super().check(options)
        if options.job_limit <= self.jobs_per_server:
            raise BadOption(
                f"job_limit: {options.job_limit} is too few: a container, its server and a client are 3"
            )
        for kind, example in (("container", "2:00:00"), ("server", "1:50:00"), ("client", "0:10:00")):
            name = f"scheduler_arg_{kind}"
            if not any("walltime=" in word for word in getattr(options, name)):
                raise BadOption(
                    f'{name}: say for how long, "-l", "/nodes=1,walltime={example}": what runs in a '
                    "container has to end before it"
                )

    def start(self, job: StudyJob) -> IndirectStart:
        """See Adapter."""
        file = f"{job.output_dir}/container.{job.incarnation}"
        if job.is_server:
            return self._with_container(job, file)
        options = job.options
        if len(self._jobs.inside) >= options.container_client_size:
            self._beyond += 1
            if self._beyond % options.besteffort_allocation_frequency == 0:
                return self.submission(job, ("-t", "besteffort"))
        self._jobs.inside.add(job.name)
        start = self.submission(job)
        return evolve(start, command=("/bin/sh", "-c", _SUBMIT_INNER, "sh", file, *start.command[1:]))

    def _with_container(self, job: StudyJob, file: str) -> IndirectStart:
        """Return how to submit a server in a container of its own."""
        path, alive = job.file("container", "sh"), shlex.quote(f"{job.path}.alive")
        status = shlex.quote(job.processes[0].status)
        options = job.options
        request = BatchRequest(
            container_name(job.name),
            nodes=0,
            arguments=("-t", "container", *options.scheduler_arg, *options.scheduler_arg_container),
            script_file=path,
        )
        server = self.submission(job)
        lines = _SUBMIT_SERVER.lstrip().format(
            container=shlex.join(self._jobs.submit(request)),
            file=shlex.quote(file),
            server=shlex.join(server.command[1:]),
        )
        files = {name: _ALIVE.format(alive=alive) + text for name, text in server.files.items()}
        container = _CONTAINER.format(name=job.name, status=status, alive=alive)
        return IndirectStart(("/bin/sh", "-c", lines), server.stdin, {**files, path: container})
