"""Adapters that other programs than PEFT write: `kohya`, `mlx` and `diffusers`.

Each file says how the program's adapters are known, what they have in place of
adapter_config.json, and which names PEFT would give their tensors.
"""
