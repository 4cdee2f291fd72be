"""Values over the last seconds, for sparklines."""

from __future__ import annotations

from collections import deque

SECONDS_KEPT = 600
"""How far back a series reaches."""


class Series:
    """One value for each second, the newest last."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=SECONDS_KEPT)
        self._second: int | None = None

    def note(self, second: int, value: float) -> None:
        """Set the value of a second; the seconds since the last one had that value too.

        A second that lies before the last one begins a new series: time has been turned back.
        """
        if self._second is None or second < self._second:
            self._values.clear()
            self._values.append(value)
        elif second == self._second:
            self._values[-1] = value
        else:
            missing = min(second - self._second, SECONDS_KEPT)
            last = self._values[-1]
            self._values.extend([last] * (missing - 1))
            self._values.append(value)
        self._second = second

    def copy(self) -> Series:
        """Return a series that goes its own way from now on."""
        other = Series()
        other._values, other._second = self._values.copy(), self._second
        return other

    def last(self, number: int) -> list[float]:
        """Return the newest ``number`` values, the newest last; fewer if there are fewer."""
        return list(self._values)[-number:] if number > 0 else []

    @property
    def now(self) -> float:
        """The newest value, 0 if there is none."""
        return self._values[-1] if self._values else 0.0
