"""The programs of lightning_test.py: python lightning_program.py ROWS VARIANT. Without a worker it trains by
itself, and prints the final weights as JSON. VARIANT-old has the package
pytorch_lightning in place of lightning."""

import json
import os
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset, SubsetRandomSampler, TensorDataset

import catchment.lightning

if sys.argv[-1].endswith("-old"):
    import pytorch_lightning as L
else:
    import lightning as L

EPOCHS = 15


class Classifier(L.LightningModule):
    def __init__(self, batch_norm=False):
        super().__init__()
        torch.manual_seed(4)
        self.layers = nn.Sequential(
            nn.Linear(6, 12), nn.BatchNorm1d(12) if batch_norm else nn.Identity(), nn.Tanh(), nn.Linear(12, 3)
        )

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

    def test_step(self, minibatch, index):
        self.log("test_loss", F.cross_entropy(self(minibatch[0]), minibatch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Manual(Classifier):
    def __init__(self, **options):
        super().__init__(**options)
        self.automatic_optimization = False

    def training_step(self, minibatch, index):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = super().training_step(minibatch, index)
        self.manual_backward(loss)
        optimizer.step()


class Parts(Classifier):
    """Accumulates the gradient of a minibatch in two backward passes, clips it,
    and has a schedule, all by hand."""

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
        assert self.trainer.estimated_stepping_batches == EPOCHS  # loads the program's own minibatches
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Skipping(Classifier):
    """Leaves out every third minibatch."""

    count = 0

    def training_step(self, minibatch, index):
        self.count += 1
        return super().training_step(minibatch, index) if self.count % 3 else None


class Percent(Classifier):
    def validation_step(self, minibatch, index):
        self.log("val_loss", 0.5)
        self.log("val_acc", 97.0)


class Silent(Classifier):
    def validation_step(self, minibatch, index):
        self.log("size", float(len(minibatch)))


class Loaders(Classifier):
    def validation_step(self, minibatch, index, dataloader_idx=0):
        super().validation_step(minibatch, index)


class Head(Classifier):
    """Trains its last layer only, as its optimizer says."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.layers[3].parameters(), lr=0.1)


class Two(Classifier):
    """Has an optimizer, and a schedule that changes nothing, for each of two parts. The second does not train
    in every minibatch."""

    count = 0

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.other = nn.Linear(6, 3)

    def training_step(self, minibatch, index):
        self.count += 1
        (first, second), (x, y) = self.optimizers(), minibatch
        for optimizer, part in ((first, self.layers), (second, self.other)):
            if part is self.layers or self.count % 3:
                self.toggle_optimizer(optimizer)
                self.manual_backward(F.cross_entropy(part(x), y))
                self.clip_gradients(optimizer, gradient_clip_val=0.05, gradient_clip_algorithm="norm")
                optimizer.step()
                optimizer.zero_grad()
                self.untoggle_optimizer(optimizer)
        for schedule in self.lr_schedulers():
            schedule.step()

    def configure_optimizers(self):
        optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.layers, self.other)]
        return optimizers, [
            torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1) for optimizer in optimizers
        ]


class Gan(L.LightningModule):
    """The loop of Lightning's own example of a GAN."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(4)
        self.generator = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6))
        self.discriminator = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1), nn.Sigmoid())
        self.noise = torch.Generator().manual_seed(1)

    def forward(self, z):
        return self.generator(z)

    def losses(self, imgs):
        """Yields the loss of the generator, then that of the discriminator."""
        z = torch.randn(len(imgs), 4, generator=self.noise)
        valid, fake = torch.ones(len(imgs), 1), torch.zeros(len(imgs), 1)
        yield F.binary_cross_entropy(self.discriminator(self(z)), valid)
        real_loss = F.binary_cross_entropy(self.discriminator(imgs), valid)
        yield (real_loss + F.binary_cross_entropy(self.discriminator(self(z).detach()), fake)) / 2

    def training_step(self, batch):
        imgs, _ = batch
        optimizer_g, optimizer_d = self.optimizers()
        losses = self.losses(imgs)
        for name, optimizer in (("g_loss", optimizer_g), ("d_loss", optimizer_d)):
            self.toggle_optimizer(optimizer)
            loss = next(losses)
            self.log(name, loss, prog_bar=True)
            self.manual_backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return [
            torch.optim.SGD(self.generator.parameters(), lr=0.1),
            torch.optim.SGD(self.discriminator.parameters(), lr=0.1),
        ], []

    def train_alone(self, imgs):
        """Both parts move by the gradients of the same weights, as in a step of a job."""
        for _ in range(EPOCHS):
            parts = [list(part.parameters()) for part in (self.generator, self.discriminator)]
            moves = [torch.autograd.grad(loss, part) for loss, part in zip(self.losses(imgs), parts)]
            with torch.no_grad():
                for p, gradient in zip(sum(parts, []), sum(moves, ())):
                    p -= 0.1 * gradient


class Stream(IterableDataset):
    def __init__(self, rows):
        self._rows = rows

    def __iter__(self):
        return iter(self._rows)


class Steps(L.Callback):
    """Records what the loop tells callbacks of its epochs."""

    def __init__(self):
        self.seen = []

    def _see(self, trainer, kind):
        self.seen.append([kind, trainer.current_epoch, trainer.is_last_batch, trainer.global_step])

    def on_train_epoch_start(self, trainer, module):
        self._see(trainer, "begins")

    def on_train_batch_end(self, trainer, module, outputs, minibatch, index):
        self._see(trainer, "step %d" % index)

    def on_train_epoch_end(self, trainer, module):
        self._see(trainer, "ends")


class Overwrites(L.Callback):
    def on_train_end(self, trainer, module):
        with torch.no_grad():
            module.layers[0].weight.mul_(0.5)


def read(path):
    rows = [list(map(float, line.split(","))) for line in open(path)]
    return TensorDataset(
        torch.tensor([row[:-1] for row in rows]), torch.tensor([int(row[-1]) for row in rows])
    )


class Diverging(Classifier):
    def training_step(self, minibatch, index):
        return super().training_step(minibatch, index) * float("nan")


class Stop(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, minibatch, index):
        trainer.should_stop = index == 2


def callbacks_of(package):
    return package.pytorch.callbacks if hasattr(package, "pytorch") else package.callbacks


def main():
    path, variant = sys.argv[1], sys.argv[2].replace("-old", "")
    warnings.simplefilter("ignore")
    warnings.filterwarnings(
        "always", "the DataLoader's batch_size|EarlyStopping|the weights of|.*drop_last|.*is empty"
    )
    rows = read(path)
    module = {
        "manual": Manual,
        "parts": Parts,
        "scheduled": Scheduled,
        "skips": Skipping,
        "silent": Silent,
        "percent": Percent,
        "diverges": Diverging,
        "head": Head,
        "loaders": Loaders,
        "two": Two,
        "gan": Gan,
    }.get(variant, Classifier)()
    if variant == "batch_norm":
        module = Classifier(batch_norm=True)
    if variant == "manual_norm":
        module = Manual(batch_norm=True)
    # All rows are one minibatch, so that their order does not count.
    train = DataLoader(rows, batch_size=len(rows), shuffle=True, num_workers=int(variant == "processes"))
    validation = DataLoader(rows, batch_size=64)
    if variant == "subset":
        train, validation = [
            DataLoader(rows, batch_size=120, sampler=SubsetRandomSampler(range(first, 240, 2)))
            for first in (0, 1)
        ]
    if variant == "stream":
        train = DataLoader(Stream(rows), batch_size=len(rows))
    if variant == "loaders":
        validation = [DataLoader(Subset(rows, part), batch_size=64) for part in (range(60), range(60, 240))]
    if variant in ("epochs", "drops"):
        train = DataLoader(rows, batch_size=50, shuffle=True, drop_last=variant == "drops")
    trainer = dict(
        max_epochs=EPOCHS,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_checkpointing=variant == "checkpoint",
        logger=False,
        enable_model_summary=False,
    )
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
        from_package = callbacks_of(L)
        trainer["callbacks"] = [
            from_package.EarlyStopping("val_loss", patience=1000),
            from_package.Timer(),
            from_package.LearningRateMonitor(),
        ]
        trainer["logger"] = (L.pytorch if hasattr(L, "pytorch") else L).loggers.CSVLogger(path + ".logs")
    checkpoint, steps = None, Steps()
    if variant == "epochs":
        trainer.update(
            max_epochs=3,
            callbacks=[steps, callbacks_of(L).ModelCheckpoint(path + ".epochs", save_top_k=-1)],
            enable_checkpointing=True,
        )
    if variant == "best":
        trainer.update(enable_checkpointing=True, default_root_dir=path + ".best")
    if variant == "monitors":
        trainer.update(
            enable_checkpointing=True, callbacks=[callbacks_of(L).ModelCheckpoint(path + ".m", monitor="f1")]
        )
    # Without a job nothing puts the weights back.
    if variant == "overwrites" and "CATCHMENT_ATTACH" in os.environ:
        trainer["callbacks"] = [Overwrites()]
    if variant == "resumes":
        checkpoint = path + ".ckpt"
        plain = L.Trainer(**trainer)
        plain.fit(Classifier(), train)
        plain.save_checkpoint(checkpoint)
    if "CATCHMENT_ATTACH" in os.environ or "CATCHMENT_DESCRIBE" in os.environ:
        trainer["strategy"] = catchment.lightning.Strategy(
            local_optimizer=variant == "local", samples_per_epoch=len(rows) if variant == "stream" else None
        )
    elif variant == "gan":
        module.train_alone(rows.tensors[0])
        trainer["max_epochs"] = 0
    if variant == "checkpoint":
        trainer["default_root_dir"] = os.path.dirname(path)
    trainer = L.Trainer(**trainer)
    trainer.fit(module, train, validation, ckpt_path=checkpoint)
    if variant == "epochs":
        print("epochs " + json.dumps(steps.seen))
    if variant == "best":
        trainer.test(dataloaders=validation, ckpt_path="best", verbose=False)
    print(
        "weights "
        + json.dumps({name: p.detach().flatten().tolist() for name, p in module.named_parameters()})
    )


if __name__ == "__main__":
    main()
