"""Sentences, lines and commands to type, for the terminal and for HTML alike."""
