"""PNML, the exchange format of Petri nets (ISO/IEC 15909-2): place/transition nets."""
