"""Co-allocation: many resources at once, in stages (COA-1 to COA-7)."""
