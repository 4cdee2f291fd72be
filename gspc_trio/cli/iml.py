"""``gspc-iml``: the independent memory layer's command."""

from __future__ import annotations

import sys


def main() -> None:
    """Say that the memory layer is not part of this version, and exit with status 1."""
    sys.exit("gspc-iml: this version has no memory layer yet; values travel with their tasks")


if __name__ == "__main__":
    main()
