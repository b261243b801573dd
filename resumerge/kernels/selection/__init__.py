"""The k largest elements of whole tensors, found by scans over their blocks in little memory."""
