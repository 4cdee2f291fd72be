"""Plans over whole graphs of tasks: ``move`` moves the fewest bytes (ASPIDE 3.1), ``heft`` ends first."""
