"""``local``: servers and clients are processes of this host, for trying out and for small studies."""

from __future__ import annotations

from gspc_trio.components.launcher.adapter import Adapter, DirectStart, HostProcess
from gspc_trio.components.launcher.options import BadOption, LauncherOptions
from gspc_trio.components.launcher.script import Starter, process_script
from gspc_trio.components.launcher.study_job import StudyJob
from gspc_trio.components.provision.providers.local import job_mark


class LocalAdapter(Adapter):
    """Processes of this host; a group has so many processes."""

    name = "local"

    def check(self, options: LauncherOptions) -> None:
        """See Adapter."""
        given = options.scheduler_arg + options.scheduler_arg_server + options.scheduler_arg_client
        if given:
            raise BadOption(f"scheduler_arg: local has no scheduler that could be given {given[0]!r}")

    def start(self, job: StudyJob) -> DirectStart:
        """See Adapter."""
        files = {
            one.script: process_script(job, one, "$$", Starter(job.starter(()))) for one in job.processes
        }
        return DirectStart(
            tuple(
                HostProcess(
                    ("/bin/sh", one.script, job_mark(job.name)),
                    () if one.client_id is None else (one.client_id,),
                )
                for one in job.processes
            ),
            files,
        )
