"""DDP with a toy model and dummy data: torchrun --standalone --nproc-per-node 2 ddp_toy.py."""

import argparse
from time import perf_counter

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
for name, default in {"epochs": 5, "samples": 4096, "batch-per-process": 32}.items():
    parser.add_argument(f"--{name}", type=int, default=default)


def make_model():
    """Ten numbers to five, in two layers."""
    return torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))


if __name__ == "__main__":
    args = parser.parse_args()
    dist.init_process_group("gloo")  # torchrun has set the addresses, with a free port
    rank, num_ranks = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)  # all ranks make the same data
    inputs = torch.randn(args.samples, 10)
    data = TensorDataset(inputs, inputs @ torch.randn(10, 5))
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, args.batch_per_process, sampler=sampler, drop_last=True)
    assert len(loader), f"{len(data)} samples are fewer than one batch in every process"
    model = torch.nn.parallel.DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        dist.barrier()  # all ranks begin together
        began = perf_counter()
        for part, wanted in loader:
            loss = torch.nn.functional.mse_loss(model(part), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.barrier()  # the slowest rank has finished too
        speed = len(loader) * args.batch_per_process * num_ranks / (perf_counter() - began)
        if rank == 0:
            print(f"rank 0 epoch {epoch}: loss {loss.item():.4f}, {speed:.0f} samples/s")

    if rank == 0:
        torch.save(model.module.state_dict(), "toy.pt")
    dist.barrier()  # no rank reads the file before rank 0 has written it
    copy = make_model()
    copy.load_state_dict(torch.load("toy.pt", map_location="cpu", weights_only=True))
    with torch.no_grad():
        assert torch.equal(copy(inputs), model.module(inputs)), "the ranks have different weights"
    dist.barrier()
    if rank == 0:
        print("every rank has read toy.pt, and has these weights")
    dist.destroy_process_group()
