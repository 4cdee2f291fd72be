"""``gspc-jobserver each``: a command for each line of a list."""
