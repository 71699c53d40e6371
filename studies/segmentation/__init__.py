"""Doubt in segmentation: borders, unseen shapes, and a teacher that weighs by doubt."""
