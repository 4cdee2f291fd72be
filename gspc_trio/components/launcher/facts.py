"""Records of what becomes of the jobs and clients of a study."""

from __future__ import annotations

from msgspec.structs import replace

from gspc_trio.components.launcher.events import (
    CancelClient,
    LauncherAction,
    ServerMessage,
    ServerPing,
    StudyDone,
    SubmitClients,
)
from gspc_trio.components.launcher.jobs import LaunchedClient, LaunchedJob
from gspc_trio.components.launcher.states import LauncherState
from gspc_trio.core.machine import Turn
from gspc_trio.records.facts import StudyChanged, StudyClientChanged, StudyJobChanged

HEARD_EVERY_S = 1.0
"""That the server has said the same again is told at most so often."""

_WORDS: dict[type[ServerMessage], str] = {
    ServerPing: "ping",
    SubmitClients: "submit",
    CancelClient: "cancel",
    StudyDone: "done",
}
"""What the server says -> how that is called in a record."""


class StudyFacts:
    """Puts records among the actions of a launcher; none where nobody wants them.

    Args:
        turn: takes them, and knows the time.
        study: its name.
        job_limit: the most jobs at a time.
        wanted: whether anybody wants them.
    """

    def __init__(self, turn: Turn[LauncherAction], study: str, job_limit: int, *, wanted: bool) -> None:
        self._turn = turn
        self._wanted = wanted
        self._last = StudyChanged(0.0, study, "idle", 0, job_limit)
        self._heard_told_s = 0.0

    def state(self) -> tuple[StudyChanged, float]:
        """Return what was told last; see :meth:`restore`."""
        return self._last, self._heard_told_s

    def restore(self, state: tuple[StudyChanged, float]) -> None:
        """Go on after facts that have returned this state."""
        self._last, self._heard_told_s = state
        self._wanted = self._wanted and self._last.state != LauncherState.STOPPED

    def study(self, state: LauncherState, incarnation: int, detail: str = "") -> None:
        """The launcher is in this state now, with this server; nothing is told after it has stopped."""
        if self._wanted:
            self._say(replace(self._last, state=state.value, incarnation=incarnation, detail=detail))
            self._wanted = state is not LauncherState.STOPPED

    def connected(self, job: LaunchedJob) -> None:
        """The server has connected, and so its job runs."""
        self._heard("connected")
        self.job(job, "running")

    def said(self, message: ServerMessage) -> None:
        """The server has said this."""
        self._heard(_WORDS[type(message)])

    def refused(self, reason: str) -> None:
        """A connection was refused."""
        if self._wanted:
            self._say(replace(self._last, refusals=self._last.refusals + 1, detail=reason))

    def stale(self, reason: str) -> None:
        """The engine does not tell of its jobs, and why; "": it does."""
        if self._wanted:
            self._say(replace(self._last, stale=reason))

    def job(self, job: LaunchedJob, state: str, detail: str = "") -> None:
        """A job is in this state now; nothing is told if that was told before."""
        if job.told[0] == "cancelling" and state != "gone":
            state = "cancelling"  # the engine tells of it as before, until it is gone
        told = (state, job.job_id)
        if not self._wanted or job.told == told:
            return
        job.told = told
        self._turn.actions.append(
            StudyJobChanged(
                self._turn.now,
                self._last.study,
                job.uid,
                job.name,
                job.incarnation,
                str(state),
                job.client_ids,
                job.job_id,
                detail,
            )
        )

    def wanted(self, job: LaunchedJob) -> None:
        """A job was asked for, whose clients wait."""
        for client in job.clients:
            self.client(job, client)

    def client(self, job: LaunchedJob, client: LaunchedClient, detail: str = "") -> None:
        """A client of a job has another state now."""
        if self._wanted:
            self._turn.actions.append(
                StudyClientChanged(
                    self._turn.now,
                    self._last.study,
                    job.incarnation,
                    client.client_id,
                    client.state.value,
                    job.uid if job.name else None,
                    job.job_id,
                    detail,
                )
            )

    def _heard(self, word: str) -> None:
        now = self._turn.now
        if self._wanted and (word != self._last.word or now - self._heard_told_s >= HEARD_EVERY_S):
            self._heard_told_s = now
            self._say(replace(self._last, heard_at_s=now, word=word))

    def _say(self, record: StudyChanged) -> None:
        self._last = replace(record, at_s=self._turn.now)
        self._turn.actions.append(self._last)
