"""What the model does not know, and why: scores where larger always means more doubt."""

__all__: list[str] = []
