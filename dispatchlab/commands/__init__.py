"""What the commands do: load, explore, show. `cli` parses the command line and exits with what these return."""
