"""RIF (runtime interface): stands for one host; its fence refuses grants that are over."""
