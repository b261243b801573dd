"""LoRA adapters of PEFT: their config and names, and the tensors of a model that they change.

`lora` pairs an adapter with its base model, from headers alone; `resumerge.tensors.Adapted` is what
it makes of them. May import `sources/formats/`, but not `sources/remote/`.
"""
