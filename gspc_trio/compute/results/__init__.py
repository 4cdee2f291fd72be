"""What becomes of the results of tasks in a compute process, until a RIF has them."""
