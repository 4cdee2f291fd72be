"""Tests: each folder tests the room of ``gspc_trio`` that has its name."""
