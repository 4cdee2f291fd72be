"""The language of GPI-Space: values and expressions of Petri nets."""
