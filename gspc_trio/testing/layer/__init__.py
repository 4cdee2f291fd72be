"""A simulated memory layer: real machines, shells and memory; simulated sockets and threads."""
