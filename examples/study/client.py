"""Client of a study: it throws points at a square, and writes down how many hit the circle in it."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path


def main() -> None:
    """Count hits, and write their number to a file that is there only when it is whole."""
    client_id = os.environ["GSPC_CLIENT_ID"]
    points = random.Random(int(client_id))
    hits = sum(points.random() ** 2 + points.random() ** 2 < 1 for _ in range(int(sys.argv[1])))
    path = Path(os.environ["GSPC_OUTPUT_DIR"]) / f"hits.{client_id}"
    part = path.with_name(f"part.{client_id}")
    part.write_text(f"{hits}\n")
    part.replace(path)


if __name__ == "__main__":
    main()
