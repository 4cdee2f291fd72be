"""Job server: runs one workflow; an engine says which tasks are ready, a scheduler where they run."""
