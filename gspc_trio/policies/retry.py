"""May it be tried again, and when (SCH-2, GSPC19 3.2)."""

from __future__ import annotations

from random import Random

from msgspec import Struct

from gspc_trio.core.task import TaskOptions


def back_off_s(number: int, first_s: float, longest_s: float, rng: Random | None = None) -> float:
    """Return ``first_s * 2 ** (number - 1)`` seconds, ``longest_s`` at most.

    Args:
        number: of the failure, from 1.
        first_s, longest_s: bounds in seconds.
        rng: spreads the delay over its upper half, so that what failed together does not come back
            together.
    """
    delay_s = min(first_s * 2.0 ** min(number - 1, 64), longest_s)
    return delay_s if rng is None else delay_s * (1.0 - rng.random() / 2)


class Retry(Struct, frozen=True):
    """Back off from a task's own failures; try again at once what was lost.

    Attributes:
        first_delay_s: pause after the first failure; each further one doubles it.
        longest_delay_s: bound of the pause.
        elsewhere_s: how long a task waits for another resource than those that failed it.
        returns_free: how often a worker may give a task back unasked before it runs alone and after pauses.
        returns_max: how often before it has failed.
        refusal_delay_s: rest of a grant that its worker refused; each further refusal doubles it.
        refusals_max: how often a worker may refuse a grant before it is given back.
    """

    first_delay_s: float = 0.1
    longest_delay_s: float = 10.0
    elsewhere_s: float = 1.0
    returns_free: int = 3
    returns_max: int = 12
    refusal_delay_s: float = 0.01
    refusals_max: int = 8

    def after_failure(self, options: TaskOptions, failures: int, rng: Random | None) -> float | None:
        """Return the pause in seconds before the next attempt, None when the task may have no more."""
        if failures >= options.attempts or not options.may_rerun:
            return None
        return back_off_s(failures, self.first_delay_s, self.longest_delay_s, rng)

    def after_loss(self, options: TaskOptions, losses: int) -> float | None:
        """Return 0 (at once), or None when the attempts for losses are used up."""
        return 0.0 if losses < options.loss_attempts else None

    def after_return(self, returns: int) -> float | None:
        """Return the pause in seconds, None when no worker seems to take the task."""
        if returns >= self.returns_max:
            return None
        if returns <= self.returns_free:
            return 0.0
        return back_off_s(returns - self.returns_free, self.first_delay_s, self.longest_delay_s)

    def after_wait(self, waits: int) -> float:
        """Return the pause in seconds before it is tried whether all that a task needs is there and well."""
        return back_off_s(waits, self.first_delay_s, self.longest_delay_s)

    def after_refusal(self, refusals: int) -> float | None:
        """Return the seconds for which a grant rests that its worker has refused, None to give it back.

        A worker refuses while it still ends what ran there before, or because the news has not come yet that
        the grant is over.
        """
        if refusals > self.refusals_max:
            return None
        return back_off_s(refusals, self.refusal_delay_s, self.elsewhere_s)

    def alone_after(self, returns: int) -> bool:
        """Return whether it runs alone from now on: fate can then not touch it again."""
        return returns >= self.returns_free
