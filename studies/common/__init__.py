"""What the studies share: images, networks, training, runs to resume, tables, services."""
