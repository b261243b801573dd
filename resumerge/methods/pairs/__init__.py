"""Methods that take exactly two models, element by element."""
