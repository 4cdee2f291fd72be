"""The stream to watchers and files, and files that outlive the machine, on trio."""
