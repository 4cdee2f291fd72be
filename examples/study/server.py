"""Server of a study: 20 clients, four a job, estimate pi, and this program puts together what they find.

The launcher starts it: ``gspc-launcher --config-name examples/study/study.toml``.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

from gspc_trio import study

CLIENTS, CLIENTS_PER_JOB, SAMPLES, TRIES_MAX = 20, 4, 20_000, 3
COMMAND = [sys.executable, str(Path(__file__).with_name("client.py")), str(SAMPLES)]
FOLDER = Path(os.environ["GSPC_OUTPUT_DIR"])


def hits(client_id: int) -> Path:
    """Return the file with the result of a client."""
    return FOLDER / f"hits.{client_id}"


def main() -> None:
    """Have all clients started, those that fail once more, and print the estimate."""
    with study.connect() as launcher:
        # A server that takes the place of another one finds what clients have written before.
        wanted = [client_id for client_id in range(CLIENTS) if not hits(client_id).exists()]
        for start in range(0, len(wanted), CLIENTS_PER_JOB):
            launcher.submit(wanted[start : start + CLIENTS_PER_JOB], COMMAND)
        tries = Counter(wanted)
        for change in launcher.changes():
            print(f"client {change.client_id} is {change.state} {change.text}", flush=True)
            has_failed = change.state in ("failed", "not submitted")
            if has_failed and tries[change.client_id] < TRIES_MAX:
                tries[change.client_id] += 1
                launcher.submit(change.client_id, COMMAND)
        total = sum(int(hits(client_id).read_text()) for client_id in range(CLIENTS))
        estimate = 4 * total / (CLIENTS * SAMPLES)
        print(f"pi is about {estimate:.3f}", flush=True)
        (FOLDER / "pi.txt").write_text(f"{estimate:.3f}\n")
        launcher.done()


if __name__ == "__main__":
    main()
