"""RUNS: the only helpers over trio and trio-websocket; no domain words."""
