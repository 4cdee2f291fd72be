"""A memory layer in a simulated cluster: real machines, shells and memory; simulated sockets and threads."""
