"""LoRA adapters of PEFT: their config and names, and the tensors of a model that they change.

`lora` pairs an adapter with its base model from headers alone; `overlay` computes the changed
tensors as they are read. May import `sources/formats/`, but neither `sources/hub/` nor
`sources/tokenizers/`.
"""
