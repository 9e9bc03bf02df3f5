"""Times by slope, in regimes, and the ceilings of the machine they were taken on."""
