"""Softmax doubt on strangers: norms, angles, regions, scaled and fooling inputs."""
