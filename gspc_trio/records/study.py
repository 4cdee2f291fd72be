"""Progress of one study: a fold of the records of its launcher.

It grows with what is live; of what has ended the last is kept, and the rest is counted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.records.facts import StudyChanged, StudyClientChanged, StudyJobChanged, StudyRecord

GONE_JOBS_MAX = 10_000
"""Last jobs that are kept after they have gone."""

ENDED_CLIENTS_MAX = 10_000
"""Last clients that are kept after their end."""

CLIENT_STATES = (
    *("postponed", "submitted", "queued", "held", "running"),
    *("completed", "failed", "not submitted", "cancelled", "abandoned"),
)
"""States of clients, in the order in which people want to see them.

A client is abandoned when its server is over, or the study, before it has ended: nobody is told any more
what becomes of it.
"""

_LIVE = frozenset({"postponed", "submitted", "queued", "held", "running"})

JOB_STATES = ("submitted", "queued", "held", "running", "cancelling", "gone")
"""States of jobs."""


class StudyProgress(Struct):
    """How far a study is.

    Attributes:
        changed: the last word on the study itself, or None.
        jobs: number of its submission -> the last word on each job that is not gone.
        gone: the same of the last jobs that are gone, oldest first.
        clients: the last word on each client that has not ended, by its id.
        ended: number of a submission and a client of its job -> the last word on clients that have ended.
        counts: state -> how many clients of the present server have ended so.
    """

    changed: StudyChanged | None = None
    jobs: dict[int, StudyJobChanged] = field(default_factory=dict)
    gone: OrderedDict[int, StudyJobChanged] = field(default_factory=OrderedDict)
    clients: dict[int, StudyClientChanged] = field(default_factory=dict)
    ended: OrderedDict[tuple[int | None, int], StudyClientChanged] = field(default_factory=OrderedDict)
    counts: Counter[str] = field(default_factory=Counter)

    def apply(self, record: StudyRecord) -> None:
        """Take in one record."""
        match record:
            case StudyChanged():
                self._study_changed(record)
            case StudyJobChanged():
                self._job_changed(record)
            case StudyClientChanged():
                self._client_changed(record)

    def by_state(self) -> dict[str, int]:
        """Return state -> number of clients of the present server in it; those with none are left out."""
        live = Counter(client.state for client in self.clients.values())
        return {state: number for state in CLIENT_STATES if (number := live[state] + self.counts[state])}

    def server_job(self) -> StudyJobChanged | None:
        """Return the job of the present server, if it was submitted."""
        incarnation = self.changed.incarnation if self.changed is not None else 0
        servers = (job for job in self.every_job() if not job.client_ids and job.incarnation == incarnation)
        return next(servers, None)

    def every_job(self) -> Iterator[StudyJobChanged]:
        """Yield the jobs that are known, the newest first."""
        for uid in sorted({**self.jobs, **self.gone}, reverse=True):
            yield self.jobs.get(uid) or self.gone[uid]

    def job(self, uid: int) -> StudyJobChanged | None:
        """Return the job that was submitted with this number, or None."""
        return self.jobs.get(uid) or self.gone.get(uid)

    def clients_of(self, job: StudyJobChanged) -> list[StudyClientChanged]:
        """Return what is known of the clients of a job."""
        known = (self.ended.get((job.uid, name)) or self._live(job.uid, name) for name in job.client_ids)
        return [client for client in known if client is not None]

    def snapshot(self) -> list[StudyRecord]:
        """Return records that make this state of a new fold."""
        records: list[StudyRecord] = []
        if self.changed is not None:
            named = Counter(
                client.state
                for client in self.ended.values()
                if client.incarnation == self.changed.incarnation
            )
            records.append(replace(self.changed, unnamed=dict(self.counts - named)))
        records += [*self.gone.values(), *self.jobs.values(), *self.ended.values(), *self.clients.values()]
        return records

    def _live(self, uid: int, client_id: int) -> StudyClientChanged | None:
        found = self.clients.get(client_id)
        return found if found is not None and found.uid == uid else None

    def _study_changed(self, record: StudyChanged) -> None:
        if self.changed is None or record.incarnation != self.changed.incarnation:
            self.counts = Counter(record.unnamed)
            self._abandon(counted=False)
        elif record.state in ("stopping", "stopped"):
            self._abandon(counted=True)
        self.changed = record

    def _abandon(self, *, counted: bool) -> None:
        for client in list(self.clients.values()):
            self._end(replace(client, state="abandoned"), counted=counted)
        self.clients.clear()

    def _job_changed(self, record: StudyJobChanged) -> None:
        if record.state == "gone":
            self.jobs.pop(record.uid, None)
            self.gone[record.uid] = record
            if len(self.gone) > GONE_JOBS_MAX:
                self.gone.popitem(last=False)
        else:
            self.jobs[record.uid] = record

    def _client_changed(self, record: StudyClientChanged) -> None:
        if record.state in _LIVE:
            self.clients[record.client_id] = record
            return
        self.clients.pop(record.client_id, None)
        present = self.changed is None or record.incarnation == self.changed.incarnation
        self._end(record, counted=present)

    def _end(self, record: StudyClientChanged, *, counted: bool) -> None:
        self.counts[record.state] += counted
        self.ended.pop((record.uid, record.client_id), None)
        self.ended[record.uid, record.client_id] = record
        if len(self.ended) > ENDED_CLIENTS_MAX:
            self.ended.popitem(last=False)
