"""Depth, width, decay and other choices; `calibrators` builds upon its networks."""
