"""COMPUTES WHAT IS READY: the Petri net, its engine, task graphs, patterns, transformations."""
