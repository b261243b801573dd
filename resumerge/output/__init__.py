"""What makes the shards a model folder: config.json, index, tokenizer, model card."""

from resumerge.output.finish import companions

__all__ = ["companions"]
