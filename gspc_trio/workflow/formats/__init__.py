"""Formats of workflow files that others wrote: readers and writers, one package each."""
