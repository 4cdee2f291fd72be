"""Views of the terminal: each draws one side of the model."""
