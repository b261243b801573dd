"""The parsing of command lines: decorators for arguments and options, and mergekit's options.

`arguments` has the decorators for arguments and options that several commands share, and `command`
the subclasses of click's classes for help texts and lazy loading. `mergekit_options` translates
options of mergekit, and `recipe_words` has advice for options that are keys of recipes.
"""
