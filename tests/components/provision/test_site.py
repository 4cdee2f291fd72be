"""Batch jobs through unclear submissions, silent batch systems and late cancels, as lists of actions."""

from __future__ import annotations

import pytest

from gspc_trio.components.provision.batch import (
    BatchJob,
    BatchRequest,
    BatchState,
    request_of,
)
from gspc_trio.components.provision.site import (
    AskJob,
    BatchSite,
    CancelAnswered,
    CancelJob,
    JobAdopted,
    JobAnswered,
    JobContact,
    JobEnding,
    JobForgotten,
    JobMoved,
    JobOver,
    JobRuns,
    JobsListed,
    JobUnwanted,
    JobWanted,
    ListQueue,
    QueryTimes,
    SiteAction,
    SiteEvent,
    SubmitAnswered,
    SubmitJob,
    SubmitRefused,
)
from gspc_trio.core.machine import IllegalEvent, Tick

QUEUED, RUNNING, HELD = BatchState.QUEUED, BatchState.RUNNING, BatchState.HELD


class Site:
    """A site, checked after each event; time goes from deadline to deadline."""

    def __init__(self) -> None:
        self.machine = BatchSite("slurm", QueryTimes())
        self.now = 0.0

    def tell(self, event: SiteEvent) -> list[SiteAction]:
        actions = self.machine.handle(event, self.now)
        self.machine.check()
        return actions

    def tick(self) -> list[SiteAction]:
        due = self.machine.deadline()
        assert due is not None
        self.now = max(self.now, due)
        return self.tell(Tick())

    def listed(self, *jobs: BatchJob) -> list[SiteAction]:
        """Tick until a list is asked for, and answer it."""
        assert self.tick() == [ListQueue()]
        return self.tell(JobsListed(jobs))

    def submitted(self, name: str = "a", job_id: str | None = "1") -> None:
        assert self.tell(JobWanted(name)) == [SubmitJob(name)]
        self.tell(SubmitAnswered(name, job_id))


def job(state: BatchState, reason: str = "", name: str = "a", hopeless: bool = False) -> BatchJob:
    return BatchJob("1", name, state, reason, hopeless)


def test_a_job_is_submitted_listed_and_over():
    site = Site()
    assert site.tell(JobWanted("a")) == [SubmitJob("a")]
    assert site.machine.deadline() is None
    assert site.tell(SubmitAnswered("a", "1")) == [JobMoved("a", "slurm job 1 is queued", "1", QUEUED)]
    assert site.listed(job(QUEUED, "Resources")) == [
        JobMoved("a", "slurm job 1 is queued: Resources", "1", QUEUED, "Resources")
    ]
    assert site.listed(job(RUNNING)) == [JobMoved("a", "slurm job 1 is running", "1", RUNNING)]
    over = JobOver("a", "ended", "slurm job 1 ended: TIMEOUT")
    assert site.listed(job(BatchState.ENDED, "TIMEOUT")) == [over]
    assert site.machine.deadline() is None


def test_a_word_that_is_not_known_says_only_that_the_job_is_there():
    site = Site()
    site.submitted()
    site.listed(job(RUNNING))
    assert site.listed(job(BatchState.UNKNOWN, "WANDERING")) == []
    site.tell(JobUnwanted("a"))
    site.tell(CancelAnswered("a"))
    assert site.tick() == [AskJob("a", "1")]
    assert site.tell(JobAnswered("a", (job(BatchState.UNKNOWN),))) == [CancelJob("a", "1")]


def test_a_job_of_another_name_under_the_same_id_is_another_job():
    site = Site()
    site.submitted()
    assert AskJob("a", "1") in site.listed()
    assert site.tell(JobAnswered("a", (job(RUNNING, name="b"),))) == [
        JobMoved("a", "slurm does not know job 1 any more", "1", QUEUED)
    ]


def test_lists_get_rare_while_nothing_changes_and_frequent_again():
    site = Site()
    site.submitted()
    times = []
    for _ in range(6):
        site.listed(job(QUEUED))
        times.append(site.now)
    assert times == [10, 20, 40, 80, 140, 200]
    site.submitted("b", "2")
    site.tick()
    assert site.now == 210


def test_a_refused_submission_is_over():
    site = Site()
    site.tell(JobWanted("a"))
    assert site.tell(SubmitRefused("a", "no such queue")) == [JobOver("a", "refused", "no such queue")]


def test_a_job_that_was_refused_for_good_is_over_for_good():
    site = Site()
    site.tell(JobWanted("a"))
    refused = SubmitRefused("a", "no such queue", is_hopeless=True)
    assert site.tell(refused) == [JobOver("a", "hopeless", "no such queue")]


def test_an_unclear_submission_is_adopted_when_a_list_has_it():
    site = Site()
    site.tell(JobWanted("a"))
    moved = JobMoved("a", "slurm did not say whether it has taken the job", "", None)
    assert site.tell(SubmitAnswered("a", None)) == [moved]
    assert site.listed() == []
    assert site.listed(job(RUNNING)) == [JobMoved("a", "slurm job 1 is running", "1", RUNNING)]
    assert site.tell(JobUnwanted("a")) == [CancelJob("a", "1")]


def test_an_unclear_submission_that_two_lists_a_minute_apart_do_not_have_was_none():
    site = Site()
    site.submitted(job_id=None)
    found: list[SiteAction] = []
    while not found:
        found = site.listed()
    assert found == [JobOver("a", "refused", "slurm has not taken the job: no list has it")]
    assert site.now >= 10 + QueryTimes().unclear_s


def test_a_job_that_no_list_had_before_its_submission_was_answered_is_not_missed():
    site = Site()
    site.tell(JobWanted("a"))
    site.tell(JobRuns("a", ""))
    assert site.listed() == []
    assert site.tell(SubmitAnswered("a", "1")) == [JobMoved("a", "slurm job 1 is running", "1", RUNNING)]
    assert site.listed() == [AskJob("a", "1")]


def test_what_commands_say_of_an_unclear_submission_is_told():
    site = Site()
    site.tell(JobWanted("a"))
    text = "slurm did not say whether it has taken the job"
    assert site.tell(SubmitAnswered("a", None, "ssh: no route")) == [JobMoved("a", f"{text}: ssh: no route")]
    for problem, actions in [("", []), ("ssh: refused", [JobMoved("a", f"{text}: ssh: refused")])]:
        assert site.tick() == [ListQueue()]
        assert site.tell(JobsListed(None, problem)) == actions
    found: list[SiteAction] = []
    while not found:
        found = site.listed()
    reason = "slurm has not taken the job: no list has it; it said: ssh: refused"
    assert found == [JobOver("a", "refused", reason)]


def test_a_cancelled_job_without_an_id_is_looked_for_at_once_and_cancelled_again():
    site = Site()
    site.submitted(job_id=None)
    assert site.tell(JobUnwanted("a")) == [CancelJob("a", "")]
    assert site.tell(CancelAnswered("a")) == []
    while (actions := site.tick()) == []:
        pass
    assert (actions, site.now) == ([ListQueue()], QueryTimes().cancel_s)
    there = site.tell(JobsListed((job(QUEUED),)))
    assert there == [JobMoved("a", "slurm job 1 is queued", "1", QUEUED), CancelJob("a", "1")]


def test_a_failed_list_says_nothing():
    site = Site()
    site.submitted(job_id=None)
    for _ in range(20):
        assert site.tick() == [ListQueue()]
        assert site.tell(JobsListed(None)) == []


def test_a_list_that_began_before_a_submission_says_nothing_of_it():
    site = Site()
    site.submitted()
    assert site.tick() == [ListQueue()]
    site.now += 1
    site.submitted("b", "2")
    assert site.tell(JobsListed((job(QUEUED),))) == []
    assert site.listed(job(QUEUED)) == [AskJob("b", "2")]


def test_a_missing_job_is_asked_for_and_given_up_when_nothing_is_heard_of_it():
    site = Site()
    site.submitted()
    site.listed(job(RUNNING))
    assert site.listed() == [AskJob("a", "1")]
    assert site.tell(JobAnswered("a", None)) == []  # not to be had: it says nothing
    assert site.listed() == [AskJob("a", "1")]
    assert site.tell(JobAnswered("a", ())) == [
        JobMoved("a", "slurm does not know job 1 any more", "1", RUNNING)
    ]
    missing_at = site.now
    found: list[SiteAction] = []
    while not found or isinstance(found[0], ListQueue | AskJob):
        found = site.tick()
        if found == [ListQueue()] and site.tell(JobsListed(())):
            assert site.tell(JobAnswered("a", ())) == []
    assert found == [JobOver("a", "missing", "nothing was heard of slurm job 1 for 300 s")]
    assert site.now == missing_at + 300


def test_what_runs_no_more_is_looked_for_at_once_and_is_over_when_it_is_not_known():
    site = Site()
    site.submitted()
    site.listed(job(RUNNING))
    assert site.tell(JobEnding("a")) == [AskJob("a", "1")]
    assert site.tell(JobEnding("a")) == []
    for passed in (1.0, 2.0, 4.0):
        began = site.now
        assert site.tell(JobAnswered("a", (job(RUNNING),) if passed < 4.0 else None)) == []
        assert site.tick() == [AskJob("a", "1")]
        assert site.now - began == passed
    assert site.tell(JobAnswered("a", ())) == [JobOver("a", "ended", "it has ended")]


def test_what_has_ended_before_its_submission_is_answered_is_looked_for_then():
    site = Site()
    site.tell(JobWanted("a"))
    assert site.tell(JobEnding("a")) == []
    moved = JobMoved("a", "slurm job 1 is queued", "1", QUEUED)
    assert site.tell(SubmitAnswered("a", "1")) == [moved, AskJob("a", "1")]


def test_a_missing_job_that_comes_back_goes_on():
    site = Site()
    site.submitted()
    site.listed()
    site.tell(JobAnswered("a", ()))
    assert site.listed(job(RUNNING)) == [JobMoved("a", "slurm job 1 is running", "1", RUNNING)]
    for _ in range(20):
        assert site.listed(job(RUNNING)) == []


def test_a_job_on_a_node_out_of_sight_is_missing():
    site = Site()
    site.submitted()
    over = JobOver("a", "missing", "slurm job 1 ended: NODE_FAIL")
    assert site.listed(job(BatchState.LOST, "NODE_FAIL")) == [over]


def test_a_cancelled_job_is_cancelled_until_it_is_gone():
    site = Site()
    site.submitted()
    site.listed(job(RUNNING))
    assert site.tell(JobUnwanted("a")) == [CancelJob("a", "1")]
    assert site.tell(JobUnwanted("a")) == []
    assert site.tell(CancelAnswered("a")) == []
    assert site.tick() == [AskJob("a", "1")]
    assert site.tell(JobAnswered("a", (job(RUNNING),))) == [CancelJob("a", "1")]
    site.tell(CancelAnswered("a"))
    assert site.tick() == [AskJob("a", "1")]
    assert site.tell(JobAnswered("a", ())) == [JobOver("a", "ended", "it was cancelled")]


def test_a_job_that_is_cancelled_while_it_is_submitted_is_cancelled_then():
    site = Site()
    site.tell(JobWanted("a"))
    assert site.tell(JobUnwanted("a")) == []
    queued = JobMoved("a", "slurm job 1 is queued", "1", QUEUED)
    assert site.tell(SubmitAnswered("a", "1")) == [queued, CancelJob("a", "1")]


def test_an_unclear_job_is_cancelled_by_its_name():
    site = Site()
    site.submitted(job_id=None)
    assert site.tell(JobUnwanted("a")) == [CancelJob("a", "")]
    site.tell(CancelAnswered("a"))
    assert site.tick() == []
    ended = job(BatchState.ENDED, "CANCELLED")
    assert site.listed(ended) == [JobOver("a", "ended", "slurm job 1 ended: CANCELLED")]


def test_what_can_never_run_is_cancelled_with_the_reason():
    site = Site()
    site.submitted()
    moved = JobMoved(
        "a", "slurm job 1 is queued: PartitionConfig", "1", QUEUED, "PartitionConfig", is_hopeless=True
    )
    assert site.listed(job(QUEUED, "PartitionConfig", hopeless=True)) == [moved, CancelJob("a", "1")]
    site.tell(CancelAnswered("a"))
    site.tick()
    reason = "slurm job 1 can never run as it was asked for: PartitionConfig"
    assert site.tell(JobAnswered("a", ())) == [JobOver("a", "ended", reason)]


def test_a_held_job_waits():
    site = Site()
    site.submitted()
    assert site.listed(job(HELD, "JobHeldUser")) == [
        JobMoved("a", "slurm job 1 is held: JobHeldUser", "1", HELD, "JobHeldUser")
    ]
    assert site.listed(job(HELD, "JobHeldUser")) == []


def test_a_forgotten_job_is_not_heard_of_again():
    site = Site()
    site.submitted()
    assert site.tell(JobForgotten("a")) == []
    assert site.machine.deadline() is None
    assert site.tell(JobAnswered("a", ())) == site.tell(CancelAnswered("a")) == []


def test_a_name_is_used_once_and_a_submission_answered_once():
    site = Site()
    site.submitted()
    with pytest.raises(IllegalEvent, match="there is a job a already"):
        site.tell(JobWanted("a"))
    with pytest.raises(IllegalEvent, match="answered before"):
        site.tell(SubmitAnswered("a", "2"))
    with pytest.raises(IllegalEvent, match="nobody asked"):
        site.tell(JobsListed(()))


def test_options_become_a_request():
    options = {"time": "10m", "queue": "debug", "account": "physics", "arguments": "--qos=low --nice"}
    expected = BatchRequest("a", 2, 600, "debug", "physics", ["--qos=low", "--nice"])
    assert request_of("a", 2, options) == expected
    assert request_of("a", 0, {}) == BatchRequest("a", arguments=[])


def test_a_job_is_alive_whatever_is_said_while_its_processes_are_connected():
    site = Site()
    site.submitted()
    site.listed(job(RUNNING))
    assert site.tell(JobContact("a", 2)) == []
    assert site.listed(job(BatchState.ENDED, "NODE_FAIL")) == []
    assert site.listed() == [AskJob("a", "1")]
    assert site.tell(JobAnswered("a", ())) == []  # it is not missing
    for _ in range(20):
        site.listed()
        site.tell(JobAnswered("a", ()))
    assert site.tell(JobContact("a", 0)) == [AskJob("a", "1")]
    over = JobOver("a", "ended", "slurm job 1 ended: NODE_FAIL")
    assert site.tell(JobAnswered("a", (job(BatchState.ENDED, "NODE_FAIL"),))) == [over]


def test_an_unclear_submission_is_clear_when_a_process_of_the_job_says_that_it_runs():
    site = Site()
    site.tell(JobWanted("a"))
    running = JobMoved("a", "slurm job 1 is running", "1", RUNNING)
    assert site.tell(JobRuns("a", "1")) == [running]
    assert site.tell(SubmitAnswered("a", None)) == []  # the command has timed out though its job runs
    assert site.tell(JobUnwanted("a")) == [CancelJob("a", "1")]


def test_a_refusal_of_a_job_that_runs_is_not_believed():
    site = Site()
    site.tell(JobWanted("a"))
    site.tell(JobRuns("a", "1"))
    assert site.tell(SubmitRefused("a", "no")) == []
    assert site.listed(job(RUNNING)) == []


def test_a_job_of_an_earlier_run_time_system_is_looked_for_and_not_submitted_again():
    site = Site()
    assert site.tell(JobAdopted("a", "")) == []
    assert site.tell(Tick()) == [ListQueue()]
    running = JobMoved("a", "slurm job 1 is running", "1", RUNNING)
    assert site.tell(JobsListed((job(RUNNING),))) == [running]


def test_the_answer_to_a_submission_says_the_id_of_a_job_that_runs_already():
    site = Site()
    site.tell(JobWanted("a"))
    assert site.tell(JobRuns("a", "")) == []
    assert site.tell(SubmitAnswered("a", "1")) == [JobMoved("a", "slurm job 1 is running", "1", RUNNING)]
    assert site.tell(JobUnwanted("a")) == [CancelJob("a", "1")]


def test_a_job_that_a_list_still_has_is_not_cancelled_again_while_that_is_under_way():
    site = Site()
    site.submitted()
    assert site.tell(JobUnwanted("a")) == [CancelJob("a", "1")]
    assert site.listed(job(RUNNING)) == [JobMoved("a", "slurm job 1 is running", "1", RUNNING)]
    assert site.tell(CancelAnswered("a")) == []
    assert site.tick() == [AskJob("a", "1")]
    assert site.tell(JobAnswered("a", (job(RUNNING),))) == [CancelJob("a", "1")]
