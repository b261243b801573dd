"""How command lines are read: arguments and options as decorators, and mergekit's spelling."""
