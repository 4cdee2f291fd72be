"""Names of the directories in which tasks with files run, and whether there are any: known without importing what
makes, reads and removes them.
"""

from __future__ import annotations

import os
from contextlib import suppress

PREFIX = "gspc-files-"

_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_USUAL = ("/tmp", "/var/tmp", "/usr/tmp", os.curdir)
"""Among these :mod:`tempfile` chooses the system's directory for temporary files."""


def are_any_left() -> bool:
    """Return whether there is a directory of this kind where temporary files may be, of whatever owner."""
    for parent in {*filter(None, map(os.environ.get, _VARIABLES)), *_USUAL}:
        with suppress(OSError), os.scandir(parent) as entries:
            if any(entry.name.startswith(PREFIX) for entry in entries):
                return True
    return False
