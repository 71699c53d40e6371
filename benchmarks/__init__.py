"""Against peers, in one run, as ratios."""
