"""Facts that a run leaves behind, their folds, and their lines in files."""
