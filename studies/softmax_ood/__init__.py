"""Softmax uncertainty on OOD inputs: norms, angles, thresholds, scaled and fooling inputs."""
