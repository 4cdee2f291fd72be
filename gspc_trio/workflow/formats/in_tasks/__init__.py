"""What tasks of foreign workflows run, in the processes that compute."""
