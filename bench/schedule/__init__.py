"""Scheduling: what policies are worth, replayed on simulated hosts and measured on real ones."""

import sys
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).parents[1])
)  # as for the scripts beside this folder, which share figures
