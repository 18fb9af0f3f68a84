"""Trains a convolutional network of PyTorch on drawn classes, as a worker: with the job's optimizer, or with
one of its own between the exchanges of weights.

    attached.py SAMPLES [own]
"""

import sys

import torch
from torch import nn

import catchment.torch as catchment
from pytorch_speed import model

CLASSES, TEST_SAMPLES = 10, 1000


def draw(samples, seed, device):
    """Returns images, each the pattern of its class with noise, and the classes."""
    patterns = torch.randn(CLASSES, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (samples,), generator=generator)
    images = patterns[labels] + 2 * torch.randn(samples, 1, 28, 28, generator=generator)
    return images.to(device), labels.to(device)


def main(samples, own=""):
    torch.manual_seed(1)
    device = catchment.device()
    _, _, net = model("mnist_cnn")
    net = net.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001) if own else None
    worker = catchment.join(net, samples, TEST_SAMPLES, optimizer=optimizer)
    images, labels = draw(samples, 2, device)
    tests, test_labels = draw(TEST_SAMPLES, 3, device)

    @torch.no_grad()
    def score():
        net.eval()
        z = net(tests)
        return nn.functional.cross_entropy(z, test_labels).item(), (z.argmax(1) == test_labels).sum().item()

    if worker.evaluates:
        worker.evaluate(score)
    for indices in worker.minibatches(range(samples), collate=list):
        x, y = images[indices], labels[indices]
        z = net(x)
        loss = nn.functional.cross_entropy(z, y)
        loss.backward()
        worker.step(loss, correct=(z.argmax(1) == y).sum())


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
