"""Fixtures of the tests of models that are elsewhere."""

from served_objects import served

__all__ = ["served"]
