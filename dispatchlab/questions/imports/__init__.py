"""Whether the order of imports matters: import packages in several orders, each in a new process, and compare."""
