"""Items of ranges: what each has of its own while it is computed."""
