"""Memory that processes of one host share: segments, the spill file, and how descriptors are handed out.

Free of trio: compute processes use it, too.
"""
