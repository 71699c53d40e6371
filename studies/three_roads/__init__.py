"""Generative, discriminative and discriminant models side by side."""
