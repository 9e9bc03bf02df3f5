"""Sources of candidates: one contract, a file each."""
