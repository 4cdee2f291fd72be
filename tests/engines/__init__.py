"""Tests with real batch systems, which need root and Debian packages; run by: make engines."""
