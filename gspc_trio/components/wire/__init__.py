"""All messages that travel between components, in the order that gives each its number."""
