"""Run-time system (RTS): hosts, their RIFs and resources, and the jobs that use them (GSPC19 2.1, 4.1).

``machine`` is the one ``handle``; behind it ``lifecycle`` has the life of RIFs, ``requests`` what they add
and remove, ``state`` what is remembered. ``events`` come in,
``actions`` go out.
"""
