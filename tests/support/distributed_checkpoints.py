"""Folders that torch.distributed.checkpoint writes: four processes on the CPU, with FSDP2 and TP.

As a program, ``python distributed_checkpoints.py FOLDER`` writes into FOLDER ``sharded``,
``grid`` and the consolidated state dict of both, ``whole.pt``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from waiting import HANGS_SECONDS

PROCESSES = 4


def write_distributed(folder: Path) -> None:
    """Write the checkpoints of four processes into a folder."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(folder)]
    subprocess.run(command, check=True, env=environment, timeout=HANGS_SECONDS)


def save_alone(state: dict[str, Any], folder: Path) -> Path:
    """Write a checkpoint from this process alone."""
    import torch.distributed.checkpoint as dcp

    dcp.save(state, checkpoint_id=folder, no_dist=True)
    return folder


def _work(rank: int, folder: str) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch import nn
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.checkpoint.stateful import Stateful
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    class App(Stateful):
        """The state of an application, as torch's tutorial defines it."""

        def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
            self.model, self.optimizer = model, optimizer

        def state_dict(self) -> dict[str, Any]:
            model, optim = get_state_dict(self.model, self.optimizer)
            return {"model": model, "optim": optim}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            raise NotImplementedError

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, 12)
            self.layers = nn.ModuleList(
                nn.ModuleDict({"up": nn.Linear(12, 22), "down": nn.Linear(22, 12, bias=False)})
                for _ in range(2)
            )
            self.norm = nn.LayerNorm(12)
            self.scale = nn.Parameter(torch.randn(3, 2))  # fewer rows than processes

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.embed(ids)
            for layer in self.layers:
                x = layer["down"](torch.relu(layer["up"](x)))
            return self.norm(x).sum() * self.scale.sum()

    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=PROCESSES)
    for name, shape in (("sharded", (PROCESSES,)), ("grid", (2, 2))):
        torch.manual_seed(7)
        model = Net().bfloat16()
        if rank == 0:
            torch.save(model.state_dict(), f"{folder}/whole.pt")
        names = ("dp", "tp")[: len(shape)]
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        if name == "grid":
            for layer in model.layers:
                plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
                parallelize_module(layer, mesh["tp"], plan)
        fully_shard(model, mesh=mesh["dp"] if name == "grid" else mesh)
        optimizer = torch.optim.AdamW(model.parameters())
        if name == "sharded":
            model(torch.arange(4)).backward()
        state: dict[str, Any] = {"app": App(model, optimizer), "step": torch.tensor(3)}
        if name == "grid":
            state = {"model": get_state_dict(model, optimizer)[0]}
        dcp.save(state, checkpoint_id=f"{folder}/{name}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    import torch.distributed.checkpoint
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel
    import torch.multiprocessing

    torch.multiprocessing.start_processes(_work, (sys.argv[1],), PROCESSES, start_method="fork")
