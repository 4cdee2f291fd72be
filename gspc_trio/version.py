"""The version of this package, and where it lies."""

from pathlib import Path

VERSION = "0.1.0"

SOURCES = Path(__file__).parents[1]
"""Directory of the package, for programs that are started with it."""
