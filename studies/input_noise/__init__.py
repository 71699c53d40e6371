"""Noise in the inputs beside noise in the labels: what density and entropy notice."""
