"""Task files: tasks with data and dependencies, in TOML."""
