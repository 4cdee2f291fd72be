"""The resource manager: who holds which resource (GSPC19 2.4; section 3 of the house plan)."""

from gspc_trio.core.rm.events import Added, Coming, JobGone, JobJoined, Removed, Settled

__all__ = ["Added", "Coming", "JobGone", "JobJoined", "Removed", "Settled"]
