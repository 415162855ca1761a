"""DDP as tutorials teach it, to compare ours with: mp.spawn, gloo, torch's default threads.

It was written for this comparison. The data are tensors in memory, so that only the training
counts. It prints the images per second of both ranks together.
"""

from __future__ import annotations

import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RANKS = 2
BATCH = 8
WARMUP_STEPS = 2


def train(rank: int, port: int, steps: int) -> None:
    """One rank."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    model = DistributedDataParallel(torchvision.models.resnet18(weights=None))
    count = RANKS * BATCH * (WARMUP_STEPS + steps)
    dataset = TensorDataset(torch.randn(count, 3, 224, 224), torch.randint(0, 1000, (count,)))
    loader = DataLoader(dataset, batch_size=BATCH, sampler=DistributedSampler(dataset))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    began_s = 0.0
    for step, (images, labels) in enumerate(loader):
        if step == WARMUP_STEPS:
            dist.barrier()
            began_s = time.perf_counter()
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    dist.barrier()
    if rank == 0:
        print(RANKS * BATCH * steps / (time.perf_counter() - began_s))
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(train, args=(port, int(sys.argv[1])), nprocs=RANKS)


if __name__ == "__main__":
    main()
