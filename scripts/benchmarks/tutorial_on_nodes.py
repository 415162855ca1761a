"""One rank of DDP as tutorials teach it, under torchrun: gloo, and synthetic data in memory.

It was written for this comparison. Rank 0 prints the images per second of both ranks together, and
the time of day at its first step.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Arguments: model, image size, batch, warm-up steps, steps."""
    name, (size, batch, warmup_steps, steps) = sys.argv[1], map(int, sys.argv[2:])
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torchvision.models.get_model(name, weights=None))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    images, labels = torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,))
    first_step_at = time.time()
    began_s = 0.0
    for step in range(warmup_steps + steps):
        if step == warmup_steps:
            dist.barrier()
            began_s = time.perf_counter()
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    dist.barrier()
    if dist.get_rank() == 0:
        lasted_s = time.perf_counter() - began_s
        print(dist.get_world_size() * batch * steps / lasted_s, first_step_at)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
