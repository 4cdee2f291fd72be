"""An executor of Snakemake: jobs are tasks of a run-time system of gspc-trio.

``snakemake --executor gspc -j N [--gspc-rts FILE] [--gspc-spawn]``
"""

import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake.settings.enums import Quietness
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import (
    CommonSettings,
    ExecMode,
    ExecutorSettingsBase,
    SharedFSUsage,
)

from snakemake_executor_plugin_gspc.jobs import JobCommand
from snakemake_executor_plugin_gspc.needs import JobNeeds, NotOffered, needs_of

if TYPE_CHECKING:
    from snakemake_executor_plugin_gspc.running import Ended

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

SHARED = (SharedFSUsage.PERSISTENCE, SharedFSUsage.INPUT_OUTPUT, SharedFSUsage.SOURCES)
"""What all hosts must share."""

LOG_BYTES_SHOWN, LOG_LINES_SHOWN = 8192, 20
"""How much is shown of the end of the log of a job that has failed."""


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Options of the command line.

    Attributes:
        rts: connection file of a run-time system that runs.
        spawn: start an interpreter for each job.
    """

    # Types are values here, not texts, for Snakemake makes options of them.
    rts: Path | None = field(
        default=None,
        metadata={
            "help": "Connection file of a running run-time system of gspc-trio. "
            "By default, one is started on the cores of this machine.",
            "metavar": "FILE",
            "parse_func": Path,
            "unparse_func": str,
        },
    )
    spawn: bool = field(
        default=False,
        metadata={
            "help": "Start a new Python for each job, instead of a fork of one that has imported Snakemake."
        },
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
)


class Executor(RealExecutor):
    """The executor: Snakemake makes one for each run."""

    def __post_init__(self) -> None:
        """Open the run-time system, or join the one that runs.

        Raises:
            WorkflowError: there is none, or the workflow does without a shared file system.
        """
        # Not at the top: Snakemake imports all plugins, whichever it uses.
        from snakemake_executor_plugin_gspc.running import Running

        self._refuse()
        settings = self.workflow.executor_settings or ExecutorSettings()
        cores = self.workflow.resource_settings.cores
        self._spawn = settings.spawn
        self._logs = Path(self.workflow.persistence.aux_path).absolute() / "gspc_logs"
        try:
            self._running = Running(
                settings.rts, cores if isinstance(cores, int) and cores < sys.maxsize else 0, settings.spawn
            )
        except Exception as error:
            raise self._refusal(f"--executor gspc: {error}") from error

    def _refusal(self, why: str) -> WorkflowError:
        """Return the error that ends all before any job has run; its reason is shown whatever is quiet."""
        if Quietness.ALL in (self.workflow.output_settings.quiet or ()):  # Snakemake shows no error then
            print(why, file=sys.stderr)
        return WorkflowError(why)

    def _refuse(self) -> None:
        """Raise WorkflowError if the workflow states what cannot be."""
        usage = self.workflow.storage_settings.shared_fs_usage
        missing = [one.item_to_choice() for one in SHARED if one not in usage]
        if missing:
            raise self._refusal(
                "--executor gspc needs a file system that all hosts share, but --shared-fs-usage is without "
                + ", ".join(missing)
            )
        if self.workflow.remote_execution_settings.immediate_submit:
            raise self._refusal("--executor gspc: jobs do not wait for others, so no --immediate-submit")

    # What the command of a job is made of ----

    @property
    def cores(self) -> str:
        """What the command of a job would state if the job stated nothing."""
        return "all"

    def get_exec_mode(self) -> ExecMode:
        """Return that jobs run apart from the process of the workflow."""
        return ExecMode.REMOTE

    def get_python_executable(self) -> str:
        """Return this Python: hosts share the file system."""
        return shlex.quote(sys.executable)

    def get_job_args(self, job: JobExecutorInterface, **kwargs: Any) -> str:
        """Return the arguments that say which job it is, and on how many cores it runs."""
        return str(super().get_job_args(job, **{"cores": self._needs(job).cores, **kwargs}))

    def additional_general_args(self) -> str:
        """Return what jobs are told besides: they run all that they are given, at once, and say little.

        They make none of the retries that a rule states: who submits them does.
        """
        once = "--preemptible-rules --preemptible-retries 0"
        return f"--executor local --scheduler greedy {once} --quiet progress rules host"

    def _needs(self, job: JobExecutorInterface) -> JobNeeds:
        return needs_of(job.threads, dict(job.resources.items()), self._running.resources)

    def _command(self, job: JobExecutorInterface, log: Path) -> JobCommand:
        line = self.format_job_exec(job)
        words = None if self._spawn else arguments_of(line)
        return JobCommand(line, words, str(self.workflow.workdir_init), dict(self.envvars()), str(log))

    # Jobs ----

    def run_job(self, job: JobExecutorInterface) -> None:
        """Run a job, or a group of them."""
        name = f"group_{job.groupid}" if job.is_group() else job.name
        log = self._logs / name / f"{job.jobid}_{job.attempt}.log"
        info = SubmittedJobInfo(job)
        self.report_job_submission(info)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            needs, command = self._needs(job), self._command(job, log)
            self._running.submit(name, command, needs, partial(self._ended, info, log))
        except NotOffered as error:
            self.report_job_error(info, str(error))
        except Exception as error:
            raise WorkflowError(f"--executor gspc: {error}") from error

    def _ended(self, info: SubmittedJobInfo, log: Path, ended: "Ended") -> None:
        """Report that a job has ended."""
        if ended.is_over:
            error = WorkflowError(f"--executor gspc: no job can run any more: {ended.why}")
            self.workflow.scheduler.executor_error_callback(error)
        elif ended.why:
            self.logger.error(f"Job {info.job.jobid} ({log.parent.name}) {ended.why}{end_of(log)}")
            self.report_job_error(info, ended.why, aux_logs=[str(log)] if log.exists() else [])
        else:
            with suppress(OSError):  # whoever reports must go on
                log.unlink(missing_ok=True)
            self.report_job_success(info)

    def shutdown(self) -> None:
        """End, when all jobs have."""
        self._running.close()

    def cancel(self) -> None:
        """End all jobs at once, with all that they have started."""
        self._running.stop()


def arguments_of(line: str) -> list[str] | None:
    """Return Snakemake's own arguments of a command, None if only a shell can run it."""
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    start = [sys.executable, "-m", "snakemake"]
    return words[3:] if words[:3] == start else None


def end_of(log: Path) -> str:
    """Return for people the end of a log, "" if there is nothing."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_BYTES_SHOWN))
            text = file.read().decode(errors="replace").rstrip()
    except OSError:
        return ""
    lines = text.splitlines()[-LOG_LINES_SHOWN:]
    return f". The end of {log}:\n" + "\n".join(f"    {line}" for line in lines) if lines else ""
