"""Each architecture's models: made when a test first asks for them, once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import transformers
from in_memory import tmp_path
from zoo import ARCHITECTURES

__all__ = ["tmp_path"]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Limit torch to one thread: tiny models are slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def family(workplace: Path) -> Callable[[str], Path]:
    """Return a function that makes an architecture's `base` and two variants, `math` and `code`."""
    root = workplace / "architectures"

    def made(name: str) -> Path:
        folder = root / name
        if not folder.exists():
            model = ARCHITECTURES[name].build(seed=0)
            model.save_pretrained(folder / "base")
            for seed, variant in enumerate(("math", "code"), start=1):
                generator = torch.Generator().manual_seed(seed)
                with torch.no_grad():
                    for parameter in model.parameters():
                        noise = torch.empty_like(parameter).normal_(0, 0.02, generator=generator)
                        parameter.add_(noise)
                model.save_pretrained(folder / variant)
        return folder

    return made
