"""Services as blocks, the loop that drives a machine, programs as scopes."""
