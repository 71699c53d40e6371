"""The policy: fit, decide, explain, and carry to production as one JSON file."""
