"""Functions of tasks, in modules without pytest and trio: each compute process of a test imports one."""
