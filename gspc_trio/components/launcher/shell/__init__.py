"""Shells of the launcher: what it decides is done here."""
