"""Outcomes of attempts that are stopped or refused, and so do not end by themselves."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.components.worker.messages import Finished, Submission, Submit
from gspc_trio.compute.channel import UNMADE
from gspc_trio.core.task import Outcome, Reason, TaskError

REFUSED = "refused"
"""Kind of the error of attempts that were not taken."""

NOTHING_PRINTED: tuple[bytes, bytes] = (b"", b"")
"""Standard output and error of an attempt that has printed nothing, or of which nothing is known."""

FATE = "fate"
"""Kind of the error of attempts that were ended by fate."""


class Verdict(Struct, frozen=True):
    """How an attempt that is being stopped will be reported, unless it ends before."""

    reason: Reason
    error: TaskError

    def outcome_of(
        self,
        submission: Submission,
        duration_s: float = 0.0,
        printed: tuple[bytes, bytes] = NOTHING_PRINTED,
    ) -> Outcome:
        """Return the outcome of a submission that ends by this verdict after ``duration_s`` of compute.

        ``printed``: the last of its standard output and error.
        """
        stdout, stderr = printed
        return Outcome(
            submission.task_id, submission.attempt, self.reason,
            error=self.error, stdout=stdout, stderr=stderr, duration_s=duration_s,
        )  # fmt: skip

    def after(self, before: Verdict | None) -> Verdict:
        """Return the one that stands: the first, unless it was a mere return."""
        if before is None:
            return self
        mere_return = before.reason is Reason.RETURNED and self.reason is not Reason.RETURNED
        return self if mere_return else before


CANCELLED = Verdict(Reason.CANCELLED, TaskError("cancelled", "it was cancelled"))
NOT_MADE = Verdict(
    Reason.RETURNED, TaskError(UNMADE, "the task whose result it takes did not finish directly before it")
)
TAKEN_BACK = Verdict(Reason.RETURNED, TaskError("taken back", "it was taken back before it began"))


def refusal(submit: Submit, why: str) -> Finished:
    """Return the answer to a submit that is not taken: every attempt goes back, with the reason."""
    verdict = Verdict(Reason.RETURNED, TaskError(REFUSED, why))
    return Finished(submit.job, submit.resources[0], tuple(map(verdict.outcome_of, submit.submissions)))


def is_refusal(outcome: Outcome) -> bool:
    """Whether an attempt was not taken: no worker has ever had it."""
    return outcome.reason is Reason.RETURNED and outcome.error is not None and outcome.error.kind == REFUSED


def had_begun(outcome: Outcome) -> bool:
    """Whether an attempt that came back had begun: fate ended it, or it lacked data while it computed."""
    kind = outcome.error.kind if outcome.error is not None else ""
    return kind == FATE or (outcome.duration_s > 0.0 and kind != REFUSED)


def without_values(outcome: Outcome, error: Exception) -> Outcome:
    """Return the outcome of an attempt whose results cannot travel: it has failed, and says why."""
    return Outcome(
        outcome.task_id,
        outcome.attempt,
        Reason.FAILED,
        error=TaskError(type(error).__name__, f"its results cannot be sent: {error}"),
        started_s=outcome.started_s,
        duration_s=outcome.duration_s,
    )
