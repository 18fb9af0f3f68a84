"""Makes models.json: losses and gradients of small models,
and the first steps of the examples' models, by PyTorch.

    python3 make_golden.py > models.json          (needs torch; PyPI's 2.15 was used)

Weights and samples follow from a formula, so that another implementation can have the same ones. The file:
  torch   version
  layers  [{name, model, input, classes, samples, loss, gradient}], in float64, `gradient` the whole flat
          vector
  steps   [{name, input, classes, samples, learning_rate, tensors, losses}]: losses of ten steps of plain SGD
          on one minibatch, in float64; of `tensors` [size, kind, scale], in the order of the flat vector, the
          initial values: scale * noise, or scale itself where kind is "constant". Dropout is left out.
          Learning rates are so small that no training is chaotic: with 0.02 in the place of 0.001 float32 is
          1 % off after ten steps of resnet20.
Noise of stream s is uniform in +-1 and exact in float32; noise() is its formula. Weights of `layers` are
noise of stream 1 times 0.5, samples noise of stream 2 times 2, labels (7 i + 3) mod classes.
"""

import json
import math

import torch
from torch import nn

M32 = 0xFFFFFFFF


def noise(count, stream):
    x = (torch.arange(count, dtype=torch.int64) * 40503 + stream * 7919 + 12345) & M32
    for shift, factor in ((16, 0x45D9F3B), (16, 0x45D9F3B)):
        x = ((x ^ (x >> shift)) * factor) & M32
    x = x ^ (x >> 16)
    return (x >> 8).double() / 2**23 - 1


class Lambda(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


class Residual(nn.Module):
    def __init__(self, branch, shortcut=None):
        super().__init__()
        self.branch = nn.Sequential(*branch)
        self.shortcut = nn.Sequential(*(shortcut or []))

    def forward(self, x):
        return self.branch(x) + self.shortcut(x)


class Lstm(nn.Module):
    def __init__(self, inputs, units, sequences=False):
        super().__init__()
        self.lstm, self.sequences = nn.LSTM(inputs, units, batch_first=True), sequences

    def forward(self, x):
        states = self.lstm(x)[0]
        return states if self.sequences else states[:, -1]


class Ghosts(nn.BatchNorm2d):
    def __init__(self, channels, batch):
        super().__init__(channels)
        self.batch = batch

    def forward(self, x):
        return torch.cat([super(Ghosts, self).forward(part) for part in x.split(self.batch)])


def pooled():
    return Lambda(lambda x: x.mean((2, 3)))


def smoothed(s):
    return nn.CrossEntropyLoss(label_smoothing=s)


def sigmoid_loss(outputs, s):
    def loss(z, y):
        t = y.to(z.dtype)[:, None] if outputs == 1 else nn.functional.one_hot(y, outputs).to(z.dtype)
        t = (1 - s) * t + s / max(outputs, 2)
        return nn.functional.binary_cross_entropy_with_logits(z, t)

    return loss


def squared_error(z, y):
    return nn.functional.mse_loss(z, nn.functional.one_hot(y, z.shape[1]).to(z.dtype))


def case(name, text, modules, input, classes, samples=4, loss=None):
    net = nn.Sequential(*modules).double().train()
    sizes = [p.numel() for p in net.parameters()]
    flat = 0.5 * noise(sum(sizes), 1).float().double()
    for p, part in zip(net.parameters(), flat.split(sizes)):
        p.data = part.reshape(p.shape).clone()
    x = (2 * noise(samples * math.prod(input), 2)).float().double().reshape(samples, *input)
    y = (7 * torch.arange(samples) + 3) % classes
    value = (loss or nn.functional.cross_entropy)(net(x), y)
    value.backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
    return dict(
        name=name,
        model=text,
        input=list(input),
        classes=classes,
        samples=samples,
        loss=float(f"{value.item():.10g}"),
        gradient=[float(f"{g:.7g}") for g in gradient.tolist()],
    )


def layers():
    conv = "layers { conv2d { filters: 4 kernel_size: 3 padding: 1 } }"
    head = "layers { global_average_pool {} } layers { dense { units: 3 } }"

    def dense(n):
        return f"layers {{ dense {{ units: {n} }} }}"

    image, end = (2, 6, 5), lambda c: [pooled(), nn.Linear(c, 3)]

    def c4():
        return nn.Conv2d(2, 4, 3, padding=1)

    yield case(
        "conv",
        f"layers {{ conv2d {{ filters: 4 kernel_size: 3 stride: 2 padding: 1 bias: false }} }} {head}",
        [nn.Conv2d(2, 4, 3, 2, 1, bias=False)] + end(4),
        image,
        3,
    )
    yield case(
        "grouped",
        f"{conv} layers {{ relu {{}} }} layers {{ conv2d {{ filters: 6 kernel_size: 3 groups: 2 }} }} {head}",
        [c4(), nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2)] + end(6),
        image,
        3,
    )
    yield case(
        "max_pool",
        f"{conv} layers {{ max_pool {{ size: 3 stride: 2 padding: 1 }} }} {head}",
        [c4(), nn.MaxPool2d(3, 2, 1)] + end(4),
        image,
        3,
    )
    yield case(
        "average_pool",
        f"{conv} layers {{ average_pool {{ size: 3 stride: 2 padding: 1 }} }} layers {{ gelu {{}} }} {head}",
        [c4(), nn.AvgPool2d(3, 2, 1), nn.GELU()] + end(4),
        image,
        3,
    )
    yield case(
        "batch_norm",
        f"{conv} layers {{ batch_norm {{}} }} layers {{ relu {{}} }} {head}",
        [c4(), nn.BatchNorm2d(4), nn.ReLU()] + end(4),
        image,
        3,
    )
    yield case(
        "ghost_batches",
        f"{conv} layers {{ batch_norm {{ ghost_batch: 3 }} }} layers {{ relu {{}} }} {head}",
        [c4(), Ghosts(4, 3), nn.ReLU()] + end(4),
        image,
        3,
        samples=8,
    )
    yield case(
        "batch_norm_of_vectors",
        f"{dense(5)} layers {{ batch_norm {{ epsilon: 0.01 }} }} {dense(3)}",
        [nn.Linear(6, 5), nn.BatchNorm1d(5, eps=0.01), nn.Linear(5, 3)],
        (6,),
        3,
    )
    yield case(
        "layer_norm_of_images",
        f"{conv} layers {{ layer_norm {{}} }} layers {{ tanh {{}} }} {head}",
        [c4(), nn.LayerNorm((4, 6, 5)), nn.Tanh()] + end(4),
        image,
        3,
    )
    yield case(
        "layer_norm_of_vectors",
        f"{dense(5)} layers {{ layer_norm {{}} }} layers {{ gelu {{}} }} {dense(3)}",
        [nn.Linear(6, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 3)],
        (6,),
        3,
    )
    yield case(
        "functions",
        f"{dense(5)} layers {{ sigmoid {{}} }} {dense(4)} layers {{ softmax {{}} }} "
        "layers { dense { units: 3 bias: false } }",
        [nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 4), nn.Softmax(1), nn.Linear(4, 3, bias=False)],
        (6,),
        3,
    )
    yield case(
        "lstm", f"layers {{ lstm {{ units: 4 }} }} {dense(3)}", [Lstm(3, 4), nn.Linear(4, 3)], (7, 3), 3
    )
    yield case(
        "lstms",
        "layers { lstm { units: 4 sequences: true } } layers { layer_norm {} } "
        f"layers {{ lstm {{ units: 3 }} }} {dense(3)}",
        [Lstm(3, 4, True), nn.LayerNorm(4), Lstm(4, 3), nn.Linear(3, 3)],
        (5, 3),
        3,
    )
    yield case(
        "residual",
        f"{conv} layers {{ residual {{ layers {{ batch_norm {{}} }} layers {{ relu {{}} }} "
        "layers { conv2d { filters: 4 kernel_size: 3 padding: 1 bias: false } } } } layers { relu {} } "
        "layers { residual { layers { conv2d { filters: 5 kernel_size: 3 stride: 2 padding: 1 } } "
        f"shortcut {{ conv2d {{ filters: 5 kernel_size: 1 stride: 2 }} }} }} }} {head}",
        [
            c4(),
            Residual([nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, bias=False)]),
            nn.ReLU(),
            Residual([nn.Conv2d(4, 5, 3, 2, 1)], [nn.Conv2d(4, 5, 1, 2)]),
        ]
        + end(5),
        image,
        3,
    )

    def linear(n):
        return [nn.Linear(6, n)]

    yield case(
        "smoothed_softmax_cross_entropy",
        f"{dense(3)} loss {{ label_smoothing: 0.1 }}",
        linear(3),
        (6,),
        3,
        loss=smoothed(0.1),
    )
    yield case(
        "sigmoid_cross_entropy",
        f"{dense(3)} loss {{ kind: SIGMOID_CROSS_ENTROPY label_smoothing: 0.3 }}",
        linear(3),
        (6,),
        3,
        loss=sigmoid_loss(3, 0.3),
    )
    yield case(
        "one_output",
        f"{dense(1)} loss {{ kind: SIGMOID_CROSS_ENTROPY label_smoothing: 0.3 }}",
        linear(1),
        (6,),
        2,
        loss=sigmoid_loss(1, 0.3),
    )
    yield case(
        "mean_squared_error",
        f"{dense(3)} loss {{ kind: MEAN_SQUARED_ERROR }}",
        linear(3),
        (6,),
        3,
        loss=squared_error,
    )


def start(net, branches_begin_as):
    """[size, kind, scale] of each tensor; `branches_begin_as`: the weight of the last batch norm in each."""
    last = [module.branch[-1] for module in net.modules() if isinstance(module, Residual)]
    for module in net.modules():
        parameters = list(module.parameters(recurse=False))
        if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
            yield parameters[0], "constant", branches_begin_as if any(module is m for m in last) else 1.0
            yield parameters[1], "constant", 0.0
        elif isinstance(module, nn.LSTM):
            for p in parameters:
                yield p, "noise", 1 / math.sqrt(module.hidden_size)
        else:
            for p in parameters:
                yield p, "noise", math.sqrt(2 / parameters[0][0].numel()) if p.dim() > 1 else 0.1


def train(name, net, input, classes, samples, learning_rate, steps=10, smoothing=0.0, branches=1.0):
    net.double().train()
    tensors = []
    for stream, (p, kind, scale) in enumerate(start(net, branches)):
        scale = torch.tensor(scale, dtype=torch.float32).item()
        tensors.append([p.numel(), kind, scale])
        values = (
            scale * noise(p.numel(), 100 + stream).float()
            if kind == "noise"
            else torch.full((p.numel(),), scale)
        )
        p.data = values.double().reshape(p.shape).clone()
    assert sum(t[0] for t in tensors) == sum(p.numel() for p in net.parameters())
    x = (2 * noise(samples * math.prod(input), 2)).float().double().reshape(samples, *input)
    y = (7 * torch.arange(samples) + 3) % classes
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(net(x), y, label_smoothing=smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(f"{loss.item():.9g}"))
    return dict(
        name=name,
        input=list(input),
        classes=classes,
        samples=samples,
        learning_rate=learning_rate,
        tensors=tensors,
        losses=losses,
    )


def convolution(i, o, k, stride=1):
    return [nn.Conv2d(i, o, k, stride, k // 2, bias=False), nn.BatchNorm2d(o)]


def resnet20():
    modules, inputs = convolution(3, 16, 3) + [nn.ReLU()], 16
    for filters in (16, 32, 64):
        for block in range(3):
            stride = 2 if filters > 16 and block == 0 else 1
            modules += [
                Residual(
                    convolution(inputs, filters, 3, stride) + [nn.ReLU()] + convolution(filters, filters, 3),
                    convolution(inputs, filters, 1, stride) if stride == 2 else None,
                ),
                nn.ReLU(),
            ]
            inputs = filters
    return nn.Sequential(*modules, pooled(), nn.Linear(64, 10))


def resnet50():
    modules, inputs = convolution(3, 64, 7, 2) + [nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if width > 64 and block == 0 else 1
            branch = (
                convolution(inputs, width, 1)
                + [nn.ReLU()]
                + convolution(width, width, 3, stride)
                + [nn.ReLU()]
                + convolution(width, 4 * width, 1)
            )
            modules += [
                Residual(branch, convolution(inputs, 4 * width, 1, stride) if block == 0 else None),
                nn.ReLU(),
            ]
            inputs = 4 * width
    return nn.Sequential(*modules, pooled(), nn.Linear(2048, 1000))


def steps():
    yield train(
        "mnist_cnn",
        nn.Sequential(
            nn.Conv2d(1, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(9216, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        ),
        (1, 28, 28),
        10,
        8,
        0.01,
    )
    yield train(
        "mnist_mlp",
        nn.Sequential(
            nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
        ),
        (1, 28, 28),
        10,
        16,
        0.05,
    )
    yield train("hep_lstm", nn.Sequential(Lstm(19, 50), nn.Linear(50, 3)), (50, 19), 3, 16, 0.1)
    yield train("resnet20_cifar10", resnet20(), (3, 32, 32), 10, 8, 0.001)
    yield train("resnet50", resnet50(), (3, 64, 64), 1000, 4, 0.001, smoothing=0.1, branches=0.0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(
        json.dumps(
            dict(torch=torch.__version__, layers=list(layers()), steps=list(steps())), separators=(",", ":")
        )
    )
