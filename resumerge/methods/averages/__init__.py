"""Averages and statistics of each element over the models, and plain copies.

One file for each method.
"""
