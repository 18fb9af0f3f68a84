"""The programs of lightning_test.py: python lightning_program.py ROWS VARIANT. Without a worker it trains by
itself, and prints the final weights as JSON. VARIANT-old has the package pytorch_lightning in place of
lightning."""
import json
import os
import sys
import warnings

import catchment.lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if sys.argv[-1].endswith("-old"):
    import pytorch_lightning as L
else:
    import lightning as L

EPOCHS = 15


class Classifier(L.LightningModule):
    def __init__(self, batch_norm=False):
        super().__init__()
        torch.manual_seed(4)
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12) if batch_norm else nn.Identity(),
                                    nn.Tanh(), nn.Linear(12, 3))

    def forward(self, x):
        return self.layers(x)

    def training_step(self, minibatch, index):
        x, y = minibatch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, minibatch, index):
        x, y = minibatch
        z = self(x)
        self.log("val_loss", F.cross_entropy(z, y))
        self.log("val_acc", (z.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Manual(Classifier):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, minibatch, index):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = super().training_step(minibatch, index)
        self.manual_backward(loss)
        optimizer.step()


class Parts(Classifier):
    """Accumulates the gradient of a minibatch in two backward passes, clips it, and has a schedule, all by
    hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, minibatch, index):
        optimizer, (x, y) = self.optimizers(), minibatch
        optimizer.zero_grad()
        for part in (slice(0, 50), slice(50, None)):
            self.manual_backward(F.cross_entropy(self(x[part]), y[part], reduction="sum") / len(x))
        self.clip_gradients(optimizer, gradient_clip_val=0.05, gradient_clip_algorithm="norm")
        optimizer.step()
        if self.lr_schedulers():
            self.lr_schedulers().step()


class Scheduled(Classifier):
    """Its schedule changes nothing, and what it logs of each step includes gradients."""

    def on_before_optimizer_step(self, optimizer):
        self.log("norm", self.layers[0].weight.grad.norm())

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Skipping(Classifier):
    """Leaves out every third minibatch."""

    count = 0

    def training_step(self, minibatch, index):
        self.count += 1
        return super().training_step(minibatch, index) if self.count % 3 else None


class Silent(Classifier):
    def validation_step(self, minibatch, index):
        pass


def read(path):
    rows = [list(map(float, line.split(","))) for line in open(path)]
    return TensorDataset(torch.tensor([row[:-1] for row in rows]),
                         torch.tensor([int(row[-1]) for row in rows]))


class Diverging(Classifier):
    def training_step(self, minibatch, index):
        return super().training_step(minibatch, index) * float("nan")


class Stop(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, minibatch, index):
        trainer.should_stop = index == 2


def main():
    path, variant = sys.argv[1], sys.argv[2].replace("-old", "")
    warnings.simplefilter("ignore")
    warnings.filterwarnings("always", "the DataLoader's batch_size|EarlyStopping")
    rows = read(path)
    module = {"manual": Manual, "parts": Parts, "scheduled": Scheduled, "skips": Skipping,
              "silent": Silent, "diverges": Diverging}.get(
        variant, Classifier)()
    if variant == "batch_norm":
        module = Classifier(batch_norm=True)
    # All rows are one minibatch, so that their order does not count.
    train = DataLoader(rows, batch_size=len(rows), shuffle=True, num_workers=int(variant == "processes"))
    trainer = dict(max_epochs=EPOCHS, accelerator="cpu", enable_progress_bar=False,
                   enable_checkpointing=variant == "checkpoint", logger=False, enable_model_summary=False)
    if variant in ("clip", "clip-bfloat16"):
        trainer["gradient_clip_val"] = 0.05
    if variant == "accumulates":
        trainer["accumulate_grad_batches"] = 2
    if variant == "stops":
        trainer["callbacks"] = [Stop()]
    if variant == "limit":
        trainer["limit_train_batches"] = 3
    if variant in ("bfloat16", "clip-bfloat16"):
        trainer["precision"] = "bf16-mixed"
    if variant == "callbacks":
        from_package = L.pytorch.callbacks if hasattr(L, "pytorch") else L.callbacks
        trainer["callbacks"] = [from_package.EarlyStopping("val_loss", patience=1000), from_package.Timer(),
                                from_package.LearningRateMonitor()]
        trainer["logger"] = (L.pytorch if hasattr(L, "pytorch") else L).loggers.CSVLogger(path + ".logs")
    checkpoint = None
    if variant == "resumes":
        checkpoint = path + ".ckpt"
        plain = L.Trainer(**trainer)
        plain.fit(Classifier(), train)
        plain.save_checkpoint(checkpoint)
    if "CATCHMENT_ATTACH" in os.environ or "CATCHMENT_DESCRIBE" in os.environ:
        trainer["strategy"] = catchment.lightning.Strategy(local_optimizer=variant == "local")
    if variant == "checkpoint":
        trainer["default_root_dir"] = os.path.dirname(path)
    trainer = L.Trainer(**trainer)
    trainer.fit(module, train, DataLoader(rows, batch_size=64), ckpt_path=checkpoint)
    print("weights " + json.dumps({name: p.detach().flatten().tolist() for name,
                                   p in module.named_parameters()}))


if __name__ == "__main__":
    main()
