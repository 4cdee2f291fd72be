"""CPython's own tests of executors, run against ours."""
