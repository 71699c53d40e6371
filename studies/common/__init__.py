"""Common parts of the studies: images, networks, training, cached runs, tables, services."""
