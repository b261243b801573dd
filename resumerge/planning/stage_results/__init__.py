"""The results of stages.

`kept` plans those that are written to the output as models, and `spilled` chooses those that are
written to scratch files.
"""
