"""What becomes of the results of stages, beside being computed from: kept as models, or spilled."""
