"""Where candidates run: processes that may die, and the executor that hands them tasks."""
