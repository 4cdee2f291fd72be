"""What is told of the run-time systems of a job that has several, for people."""

from __future__ import annotations

from collections.abc import Mapping

from gspc_trio.components.job.messages import LocationStatus


def describe_location(at: LocationStatus) -> str:
    """Return how one of several run-time systems of a job is, as a line for people."""
    there, held = _counts(at.there) or "no resources", _counts(at.held) or "none"
    text = f"{at.name} ({at.job} there): {at.state}; {there}; granted: {held}; asked for: {at.asked}"
    if at.waited_s:
        text += f", for {at.waited_s:.1f} s"
    if at.run_s:
        text += f"; a task takes {at.run_s:.3g} s, its data {at.transfer_s:.3g} s"
    return f"{text}; {at.detail}" if at.detail else text


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in numbers.items())
