"""``gspc-monitor`` and ``gspc-rts hosts``: the metrics of hosts, while a run-time system runs and after."""
