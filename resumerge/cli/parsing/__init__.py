"""The parsing of command lines: decorators for arguments and options, and mergekit's options."""
