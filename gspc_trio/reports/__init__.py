"""Reports: what the records of a run say, as one HTML page and as a timeline for trace viewers."""
