"""Job server on trio: its journal on disk, its data in the memory layer, and its clients."""
