"""Regression: which noise is learned, and what Minkowski losses estimate."""
