"""What the studies share: images, networks, training, runs that can be resumed, tables."""
