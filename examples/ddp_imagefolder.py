"""DDP on a folder of images: torchrun --standalone --nproc-per-node 8 ddp_imagefolder.py photos."""

import argparse
from time import perf_counter

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models, transforms

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a folder with one folder per class")
parser.add_argument("--model", default="resnet50", help="any but googlenet and inception_v3")
parser.add_argument("--resume", metavar="CHECKPOINT", help="go on after the epoch of this file")
for name, n in {"epochs": 30, "image-size": 224, "batch-per-gpu": 64, "workers-per-gpu": 4}.items():
    parser.add_argument(f"--{name}", type=int, default=n)
if __name__ == "__main__":
    args, gpu = parser.parse_args(), torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo")  # torchrun chooses a free port
    rank, device = dist.get_rank(), torch.device("cuda" if gpu else "cpu")
    if gpu:
        torch.cuda.set_device(rank)
    torch.manual_seed(rank)  # other dropout in every rank; DDP copies the weights of rank 0
    crop = [transforms.Resize(args.image_size * 256 // 224), transforms.CenterCrop(args.image_size)]
    colors = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    prepare = transforms.Compose([*crop, transforms.ToTensor(), colors])
    images = datasets.ImageFolder(args.data, prepare)
    sampler = DistributedSampler(images, drop_last=True)
    how = {"num_workers": args.workers_per_gpu, "persistent_workers": True, "pin_memory": gpu}
    loader = DataLoader(images, args.batch_per_gpu, sampler=sampler, drop_last=True, **how)
    assert len(loader), f"{len(images)} images are fewer than one batch in every rank"
    net = models.get_model(args.model, weights=None, num_classes=len(images.classes)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[rank] if gpu else None)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    done = 0
    if args.resume:  # every rank loads it once, onto its own device
        done, *states = torch.load(args.resume, map_location=device, weights_only=True)
        net.load_state_dict(states[0])
        optimizer.load_state_dict(states[1])
    for epoch in range(done + 1, args.epochs + 1):
        sampler.set_epoch(epoch)
        dist.barrier()  # the last checkpoint is written, and all ranks begin together
        began = perf_counter()
        for step, (inputs, labels) in enumerate(loader, 1):
            outputs = model(inputs.to(device, non_blocking=True))
            loss = torch.nn.functional.cross_entropy(outputs, labels.to(device, non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0 and rank == 0:
                print(f"rank 0 epoch {epoch} step {step}: loss {loss.item():.4f}", flush=True)
        if gpu:
            torch.cuda.synchronize()
        dist.barrier()  # the slowest rank has finished too
        speed = len(loader) * args.batch_per_gpu * dist.get_world_size() / (perf_counter() - began)
        if rank == 0:
            print(f"rank 0 epoch {epoch}: loss {loss.item():.4f}, {speed:.1f} images/s", flush=True)
            torch.save((epoch, net.state_dict(), optimizer.state_dict()), f"epoch-{epoch}.pt")
    dist.destroy_process_group()
