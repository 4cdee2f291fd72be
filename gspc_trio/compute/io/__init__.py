"""Reading and writing of tasks: the library that counts calls, and the loop that says what tasks did."""
