"""Frozen records that the stages exchange. Nothing here reads files or runs anything."""
