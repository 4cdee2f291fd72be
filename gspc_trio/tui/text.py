"""Numbers and times as people read them."""

from __future__ import annotations

import re
from datetime import datetime

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")


def duration(seconds: float | None) -> str:
    """Return a length of time in at most seven characters; "" for None.

    >>> [duration(s) for s in (0.0042, 0.5, 12.34, 75, 3700, 90000)]
    ['4 ms', '0.5 s', '12.3 s', '1m15s', '1h01m', '1d01h']
    """
    if seconds is None:
        return ""
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02}h"


def clock(at_s: float) -> str:
    """Return a wall-clock time of this host, to the second."""
    return datetime.fromtimestamp(at_s).strftime("%H:%M:%S")


def count(number: float) -> str:
    """Return a number in at most six characters.

    >>> [count(n) for n in (0, 999, 12345, 1234567, 0.25)]
    ['0', '999', '12.3k', '1.23M', '0.2']
    """
    if number >= 1e6:
        return f"{number / 1e6:.3g}M"
    if number >= 1e4:
        return f"{number / 1e3:.3g}k"
    if number < 10 and number != int(number):
        return f"{number:.1f}"
    return f"{number:.0f}"


def size(number_bytes: float) -> str:
    """Return a number of bytes.

    >>> [size(n) for n in (0, 2048, 3 * 2**30)]
    ['0 B', '2.0 KiB', '3.0 GiB']
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number_bytes < 1024 or unit == "TiB":
            break
        number_bytes /= 1024
    return f"{number_bytes:.0f} B" if unit == "B" else f"{number_bytes:.1f} {unit}"


def printable(text: str) -> str:
    r"""Return a text that does nothing to a terminal but show itself: what tasks print may be anything.

    Sequences for colours and movements are left out; of a line that was written over, the last is kept.

    >>> printable("\x1b[31mred\x1b[0m\n10%\r20%\r\n\x07bell")
    'red\n20%\n�bell'
    """
    if text.isprintable():
        return text
    return "\n".join(_printable_line(line) for line in _ESCAPES.sub("", text).split("\n"))


def _printable_line(line: str) -> str:
    line = line.rstrip("\r").rpartition("\r")[2].expandtabs()
    if line.isprintable():
        return line
    return "".join(
        each if each.isprintable() else " " if each.isspace() else "\N{REPLACEMENT CHARACTER}"
        for each in line
    )


def one_line(text: str) -> str:
    """Return a text on one line, printable.

    >>> one_line("two\\n\\tlines")
    'two lines'
    """
    return text if text.isprintable() else " ".join(printable(text).split())


def bar(share: float, width: int) -> str:
    """Return a horizontal bar of ``width`` cells, full for a share of 1.

    >>> bar(0.5, 4), bar(1.0, 2), bar(0.0, 2)
    ('██  ', '██', '  ')
    """
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)


def plural(number: int, word: str) -> str:
    """Return the number and the word, in the plural unless it is one.

    >>> plural(1, "job"), plural(2, "job")
    ('1 job', '2 jobs')
    """
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
