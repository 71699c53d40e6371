"""Conformal prediction: sets of classes and intervals with guaranteed coverage."""
