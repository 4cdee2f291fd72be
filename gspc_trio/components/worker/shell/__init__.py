"""Worker on trio: compute processes and threads, and staging."""
