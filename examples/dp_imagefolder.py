"""DataParallel on a folder of images: python dp_imagefolder.py photos."""

import argparse
from time import perf_counter

import torch
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a folder with one folder per class")
parser.add_argument("--model", default="resnet50", help="any but googlenet and inception_v3")
parser.add_argument("--resume", metavar="CHECKPOINT", help="go on after the epoch of this file")
for name, n in {"epochs": 30, "image-size": 224, "batch-per-gpu": 64, "workers-per-gpu": 4}.items():
    parser.add_argument(f"--{name}", type=int, default=n)

if __name__ == "__main__":
    args = parser.parse_args()
    gpu, num_gpus = torch.cuda.is_available(), max(1, torch.cuda.device_count())
    device = torch.device("cuda" if gpu else "cpu")
    torch.manual_seed(0)

    # One process feeds all GPUs. Its batch is the global one, and it has the workers of all GPUs.
    crop = [transforms.Resize(args.image_size * 256 // 224), transforms.CenterCrop(args.image_size)]
    colors = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    prepare = transforms.Compose([*crop, transforms.ToTensor(), colors])
    images = datasets.ImageFolder(args.data, prepare)
    batch, workers = args.batch_per_gpu * num_gpus, args.workers_per_gpu * num_gpus
    how = {"num_workers": workers, "persistent_workers": True, "pin_memory": gpu}
    loader = DataLoader(images, batch, shuffle=True, drop_last=True, **how)
    assert len(loader), f"{len(images)} images are fewer than one batch of {batch}"

    net = models.get_model(args.model, weights=None, num_classes=len(images.classes)).to(device)
    model = torch.nn.DataParallel(net)  # without GPUs it only calls the model
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    done = 0
    if args.resume:
        done, *states = torch.load(args.resume, map_location=device, weights_only=True)
        net.load_state_dict(states[0])
        optimizer.load_state_dict(states[1])

    for epoch in range(done + 1, args.epochs + 1):
        torch.manual_seed(epoch)  # another order in every epoch, also after --resume
        began = perf_counter()
        for step, (inputs, labels) in enumerate(loader, 1):
            outputs = model(inputs.to(device, non_blocking=True))
            loss = torch.nn.functional.cross_entropy(outputs, labels.to(device, non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}", flush=True)
        if gpu:
            torch.cuda.synchronize()  # the optimizer runs on the first GPU, after all others
        speed = len(loader) * batch / (perf_counter() - began)
        print(f"epoch {epoch}: loss {loss.item():.4f}, {speed:.1f} images/s", flush=True)
        torch.save((epoch, net.state_dict(), optimizer.state_dict()), f"epoch-{epoch}.pt")
