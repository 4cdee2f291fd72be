"""Tests of what providers ask of their batch systems, and how they read the answers."""
