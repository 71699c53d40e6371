"""Plots drawn with matplotlib, in the way of scikit-learn's displays."""
