"""A job of a study: what it runs, in which environment, and the names of its files (MEL-6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, field, frozen

from gspc_trio.components.launcher.events import SubmitToEngine
from gspc_trio.components.launcher.options import LauncherOptions
from gspc_trio.components.provision.batch import Command

CLIENT_VARIABLE = "GSPC_CLIENT_ID"
"""Environment of a client: its id."""

CHECKPOINT_VARIABLE = "GSPC_CHECKPOINT"
"""Environment of a server that goes on from its last checkpoint: 1; others do not have it."""

INCARNATION_VARIABLE = "GSPC_INCARNATION"
"""Environment of a server, and of the clients that it has asked for: the number of the server, from 0."""

SERVER_FILE_VARIABLE = "GSPC_SERVER_FILE"
"""Environment of a server: the file with the address of the launcher, and with its secret."""

OUTPUT_VARIABLE = "GSPC_OUTPUT_DIR"
"""Environment of servers and clients: the directory of all files of the study."""

VARIABLES = (
    *(CLIENT_VARIABLE, CHECKPOINT_VARIABLE, INCARNATION_VARIABLE),
    *(SERVER_FILE_VARIABLE, OUTPUT_VARIABLE),
)
"""All that a job is told; what the launcher itself has of them is not handed on."""

NO_OUTPUT = "/dev/null"


@frozen
class JobProcess:
    """What a job runs: the server, or one client.

    Attributes:
        client_id: of the client; None: it is the server.
        command: program and arguments.
        path: its files are named by this, and an ending.
        environment: what it is told.
        has_output: whether what it prints goes to files.
    """

    client_id: int | None
    command: Command
    path: str
    environment: Mapping[str, str] = field(factory=dict)
    has_output: bool = True

    @property
    def output(self) -> str:
        """Return the file for what it prints."""
        return f"{self.path}.out" if self.has_output else NO_OUTPUT

    @property
    def errors(self) -> str:
        """Return the file for what it prints as errors."""
        return f"{self.path}.err" if self.has_output else NO_OUTPUT

    @property
    def script(self) -> str:
        """Return the file with the script that runs it, where it has one of its own."""
        return f"{self.path}.sh"

    @property
    def status(self) -> str:
        """Return the file that its exit status goes to when it has ended."""
        return f"{self.path}.status"

    @property
    def cancel(self) -> str:
        """Return the file that ends it when it is there, while others of its job go on."""
        return f"{self.path}.cancel"


@frozen
class StudyJob:
    """A job to start.

    Attributes:
        uid: number of its submission; its files are named by it.
        name: nobody else has a job of this name.
        incarnation: of the server that it is, or that has asked for it.
        processes: what it runs: the server, or its clients.
        output_dir: absolute path of the directory of all files.
        work_dir: absolute path of the directory in which it runs.
        options: of the study.
    """

    uid: int
    name: str
    incarnation: int
    processes: tuple[JobProcess, ...]
    output_dir: str
    work_dir: str
    options: LauncherOptions

    @property
    def is_server(self) -> bool:
        """Whether it is the server."""
        return self.processes[0].client_id is None

    @property
    def path(self) -> str:
        """Return what its own files are named by: those of its only process, if it has one."""
        return self.processes[0].path if len(self.processes) == 1 else f"{self.output_dir}/job.{self.uid}"

    @property
    def output(self) -> str:
        """Return the file for what the job itself prints."""
        return f"{self.path}.out" if self.options.std_output else NO_OUTPUT

    @property
    def errors(self) -> str:
        """Return the file for what the job itself prints as errors."""
        return f"{self.path}.err" if self.options.std_output else NO_OUTPUT

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of the scheduler for this job."""
        options = self.options
        more = options.scheduler_arg_server if self.is_server else options.scheduler_arg_client
        return options.scheduler_arg + more

    def file(self, kind: str, ending: str) -> str:
        """Return the path of the file of this kind with the number of the job, such as ``sbatch.0.sh``."""
        return f"{self.output_dir}/{kind}.{self.uid}.{ending}"

    def starter(self, usual: Sequence[str]) -> Command:
        """Return the command that starts a process in the job, before the process' own.

        Args:
            usual: it, if the options say nothing.
        """
        options = self.options
        if self.is_server:
            named, more = options.scheduler_server_command, options.scheduler_server_command_options
        else:
            named, more = options.scheduler_client_command, options.scheduler_client_command_options
        return (*((named,) if named else usual), *more)


def study_job(
    asked: SubmitToEngine, options: LauncherOptions, output_dir: str, work_dir: str, server_file: str = ""
) -> StudyJob:
    """Return the job that the machine wants submitted.

    Args:
        asked: by the machine.
        options: of the study.
        output_dir: absolute path of the directory of all files.
        work_dir: absolute path of the directory in which jobs run.
        server_file: path of the file with the address of the launcher and the secret of the server.
    """
    told = {INCARNATION_VARIABLE: str(asked.incarnation), OUTPUT_VARIABLE: output_dir}
    usual = JobProcess(None, options.server_command, f"{output_dir}/job.{asked.uid}.server", told)
    usual = evolve(usual, has_output=options.std_output)
    if not asked.client_ids:
        checkpoint = {CHECKPOINT_VARIABLE: "1"} if asked.from_checkpoint else {}
        environment = {**told, SERVER_FILE_VARIABLE: server_file, **checkpoint}
        processes: tuple[JobProcess, ...] = (evolve(usual, environment=environment),)
    else:
        processes = tuple(
            evolve(
                usual,
                client_id=client_id,
                command=asked.command,
                path=f"{output_dir}/job.{asked.uid}.client.{client_id}",
                environment={**told, CLIENT_VARIABLE: str(client_id)},
            )
            for client_id in asked.client_ids
        )
    return StudyJob(asked.uid, asked.name, asked.incarnation, processes, output_dir, work_dir, options)
