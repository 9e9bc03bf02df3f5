"""Which points of an enumerated space are tried next."""
