"""kernel-compass: why a GPU kernel is slow, with the memory regime in every number."""

__version__ = "0.1.0"
