"""Whether import order matters: packages imported in some orders, each in a fresh process, and what differs."""
