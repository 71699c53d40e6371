"""Depth, width, weight decay and other choices; `calibrators` uses the same networks."""
