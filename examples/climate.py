"""One half of a climate model: it exchanges a number with the other half, step by step.

examples/climate.xml starts both halves together. The first part listens, and the second one connects to the
host of the first one, which both find in GSPC_RESOURCES.
"""

from __future__ import annotations

import os
import socket
import sys
import time

PORT = int(os.environ.get("CLIMATE_PORT", "29417"))
STEPS = 5
PATIENCE_S = 30.0


def hosts() -> list[str]:
    """Return the host of each part."""
    return [one.partition("@")[2] for one in os.environ["GSPC_RESOURCES"].split(",")]


def meet(part: int) -> socket.socket:
    """Return a connection with the other half."""
    if part == 0:
        with socket.create_server(("", PORT)) as listener:
            listener.settimeout(PATIENCE_S)
            return listener.accept()[0]
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((hosts()[0], PORT), timeout=PATIENCE_S)
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.05)


def main() -> None:
    """Let the temperatures of ocean and air come closer to each other."""
    name, part = sys.argv[1], int(os.environ["GSPC_PART"])
    degrees = (10.0, 20.0)[part]
    with meet(part) as other, other.makefile("r") as heard, other.makefile("w") as said:
        for _ in range(STEPS):
            print(degrees, file=said, flush=True)
            degrees = (degrees + float(heard.readline())) / 2
    print(f"{name}: {degrees:g} degrees after {STEPS} steps", flush=True)


if __name__ == "__main__":
    main()
