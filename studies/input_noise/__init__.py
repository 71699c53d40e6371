"""Noise in the inputs and in the labels: what density and entropy detect."""
