"""Regression: which noise is learnt, and what Minkowski losses estimate."""
