"""resumerge: merge model weights on machines that cannot be trusted."""

__version__ = "0.1.0"
