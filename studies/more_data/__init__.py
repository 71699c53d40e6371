"""More data: aleatoric uncertainty stays, epistemic uncertainty shrinks."""
