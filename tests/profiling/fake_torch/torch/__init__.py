"""Just enough of torch for the runner, on PYTHONPATH of the child alone."""

__version__ = "9.9.9+fake"
