"""WfFormat, the format of recorded runs that WfCommons collects: read, run, written from records."""
