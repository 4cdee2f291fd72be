"""Scheduler of one job: where and when each task runs (GSPC19 2.5, 3.1-3.3).

One :class:`Scheduler` serves one job. It keeps a queue for each shape (SCH-3), asks the resource manager for
as many grants as it can use, runs tasks one after another on each grant, sends short ones ahead, and tries
again what was lost or failed as the policies allow (SCH-2).
"""
