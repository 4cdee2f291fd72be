"""``oar``: servers and clients are batch jobs of OAR, and run on their first node."""

from __future__ import annotations

from gspc_trio.components.launcher.adapter import Adapter, IndirectStart
from gspc_trio.components.launcher.group import job_script
from gspc_trio.components.launcher.options import BadOption, LauncherOptions
from gspc_trio.components.launcher.script import Starter
from gspc_trio.components.launcher.study_job import StudyJob
from gspc_trio.components.provision.batch import BatchRequest, Command, Provider
from gspc_trio.components.provision.providers.oar import OarProvider


class OarAdapter(Adapter):
    """Batch jobs of OAR; a group has a process for each client."""

    name = "oar"
    programs: tuple[str, ...] = ("oarsub", "oarstat", "oardel")

    def __init__(self, provider: Provider | None = None) -> None:
        self.provider: Provider | None = provider or OarProvider()

    def check(self, options: LauncherOptions) -> None:
        """See Adapter."""
        for kind in ("server", "client"):
            name = f"scheduler_{kind}_command"
            if getattr(options, f"{name}_options") and not getattr(options, name):
                raise BadOption(f"{name}_options: they need a command: set {name}, too")

    def start(self, job: StudyJob) -> IndirectStart:
        """See Adapter."""
        return self.submission(job)

    def submission(self, job: StudyJob, types: Command = ()) -> IndirectStart:
        """Return how to submit a job.

        Args:
            job: to submit.
            types: arguments of ``oarsub`` about the kind of job.
        """
        script, files = job_script(job, "$OAR_JOB_ID", Starter(job.starter(())))
        path = job.file("oarsub", "sh")
        request = BatchRequest(
            job.name,
            nodes=0,
            arguments=(*types, *_size(job), *job.arguments),
            output=job.output,
            errors=job.errors,
            script=script,
            script_file=path,
        )
        assert self.provider is not None
        command, stdin = self.provider.submit(request), self.provider.submit_input(request)
        return IndirectStart(command, stdin, {**files, path: script})


def _size(job: StudyJob) -> Command:
    """Return what a group asks for if the options do not say what a job needs."""
    says_size = any(one.startswith(("-l", "--resource")) for one in job.arguments)
    return () if says_size or len(job.processes) == 1 else ("-l", f"/resource_id={len(job.processes)}")
