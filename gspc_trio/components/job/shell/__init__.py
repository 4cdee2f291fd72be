"""The server, its journal on disk, its data in the memory layer, and its clients, on trio."""
