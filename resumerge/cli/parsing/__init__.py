"""The parsing of command lines: arguments and options as decorators, and mergekit's spelling."""
