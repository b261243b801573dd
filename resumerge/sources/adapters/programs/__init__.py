"""Adapters that other programs than PEFT write: `kohya`, `mlx` and `diffusers`.

Each file recognises the program's adapters, reads the options that they have in place of
adapter_config.json, and renames their tensors to PEFT's names.
"""
