"""Doubt in segmentation: borders, strange shapes, and a teacher that weighs by doubt."""
