"""Independent memory layer (IML): who holds which bytes, and what becomes of them (GSPC19 2.7).

Two pure machines: the :class:`~gspc_trio.iml.coordinator.Coordinator` is the directory of all data of
one layer; a :class:`~gspc_trio.iml.store.Store` decides what a host keeps in memory and what in its
spill file.
"""
