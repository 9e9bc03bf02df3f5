"""kernel-compass: why a GPU kernel is slow, what would help, and whether a change really did."""

__version__ = "0.1.0"
