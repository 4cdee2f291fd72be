"""The independent memory layer (GSPC19 2.7): who holds which bytes, and what becomes of them.

Two pure machines: the :class:`~gspc_trio.core.iml.coordinator.Coordinator` is the directory of all data of
one layer; a :class:`~gspc_trio.core.iml.store.Store` decides what a host keeps in memory and what in its
spill file.
"""
