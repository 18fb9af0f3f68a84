"""The features of Lightning programs, and what becomes of them in a job: a case for each row of the tables in
docs/lightning.md that a program meets when fit() begins, before it joins a job."""

import datetime
import warnings

import lightning as L
import torch
from lightning.pytorch import callbacks
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import catchment.lightning

ROWS = TensorDataset(torch.rand(40, 6), torch.zeros(40, dtype=torch.long))


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = self.backbone = torch.nn.Linear(6, 3)

    def training_step(self, minibatch, index):
        return self.layer(minibatch[0]).sum()

    def validation_step(self, minibatch, index):
        self.log("val_loss", 0.0)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Scheduled(Module):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        return [optimizer], [
            torch.optim.lr_scheduler.OneCycleLR(
                optimizer, 0.1, total_steps=self.trainer.estimated_stepping_batches
            )
        ]


class Groups(Module):
    def configure_optimizers(self):
        return torch.optim.AdamW(
            [{"params": [self.layer.weight]}, {"params": [self.layer.bias], "weight_decay": 0}]
        )


class OwnData(Module):
    batch_size = 8

    def train_dataloader(self):
        return DataLoader(ROWS, self.batch_size, shuffle=True)


class Backwards(Sampler):
    def __init__(self):
        pass

    def __iter__(self):
        return iter(range(39, -1, -1))

    def __len__(self):
        return 40


class Pairs(BatchSampler):
    pass


class OwnLoader(DataLoader):
    def __iter__(self):
        return iter(())


class Stream(IterableDataset):
    def __iter__(self):
        return iter(ROWS)


class Finetuning(callbacks.BaseFinetuning):
    def freeze_before_training(self, module):
        self.freeze(module.layer)

    def finetune_function(self, module, epoch, optimizer):
        pass


class Average(callbacks.StochasticWeightAveraging):
    """A subclass, as a user may write it."""


def outcome(module=None, train=None, validation=None, strategy=None, **trainer):
    """Returns the warnings of a fit(), with the files of their lines, and the error with which it ends;
    without a worker it cannot join."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            fitted = L.Trainer(
                accelerator="cpu",
                logger=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                **{"enable_checkpointing": False, **trainer},
                strategy=catchment.lightning.Strategy(**strategy or {}),
            )
            if train is None and not isinstance(module, OwnData):
                train = DataLoader(ROWS, 8, shuffle=True)
            fitted.fit(module or Module(), train, validation)
            error = None
        except Exception as raised:
            error = raised
    return "\n".join("%s: %s" % (one.filename, one.message) for one in warned), error


def _loader(sampler):
    return {"train": DataLoader(ROWS, 8, sampler=sampler)}


def _callback(callback):
    return {"callbacks": [callback], "enable_checkpointing": isinstance(callback, callbacks.ModelCheckpoint)}


def _monitor(name):
    return _callback(callbacks.ModelCheckpoint(monitor=name))


# Row of the table -> (arguments of outcome(), words of the error)
REFUSED = {
    "WeightedRandomSampler": [
        (_loader(WeightedRandomSampler([1.0] * 40, 40)), "WeightedRandomSampler.*weights go into the loss")
    ],
    "RandomSampler(replacement=True)": [
        (
            _loader(RandomSampler(ROWS, replacement=True)),
            "RandomSampler that draws 40 of 40 samples with replacement",
        ),
        (_loader(RandomSampler(ROWS, num_samples=10)), "RandomSampler that draws 10 of 40 samples, but"),
    ],
    "another sampler": [(_loader(Backwards()), "the training DataLoader has a Backwards")],
    "batch_sampler": [
        (
            {
                "train": DataLoader(
                    ROWS, batch_sampler=BatchSampler(WeightedRandomSampler([1.0] * 40, 40), 8, False)
                )
            },
            "has a WeightedRandomSampler",
        ),
        ({"train": DataLoader(ROWS, batch_sampler=Pairs(SequentialSampler(ROWS), 2, False))}, "has a Pairs"),
    ],
    "batch_size=None": [({"train": DataLoader(ROWS, batch_size=None)}, "makes whole minibatches")],
    "a subclass with its own __iter__": [
        ({"train": OwnLoader(ROWS, 8)}, "OwnLoader, which makes minibatches by .* __iter__")
    ],
    "several training loaders": [
        ({"train": [DataLoader(ROWS, 8), DataLoader(ROWS, 8)]}, "one DataLoader, but there is a list")
    ],
    "IterableDataset": [
        ({"train": DataLoader(Stream(), 8)}, r"Stream\) is a stream.*Strategy\(samples_per_epoch=")
    ],
    "a validation set without a length": [
        ({"validation": DataLoader(Stream(), 8)}, r"validation loader \(Stream\) is not known")
    ],
    "accumulate_grad_batches": [({"accumulate_grad_batches": 2}, "push_period=2")],
    "fast_dev_run": [({"fast_dev_run": True}, "fast_dev_run")],
    "limit_train_batches": [
        ({"limit_train_batches": 3}, "limit_train_batches is 3, but the job's budget"),
        ({"limit_train_batches": 0.5}, "limit_train_batches is 0.5"),
    ],
    "overfit_batches": [({"overfit_batches": 2}, "overfit_batches is 2")],
    "reload_dataloaders_every_n_epochs": [
        ({"reload_dataloaders_every_n_epochs": 1}, "reload_dataloaders_every_n_epochs")
    ],
    "sync_batchnorm": [({"sync_batchnorm": True}, "sync_batchnorm has no effect")],
    'ModelCheckpoint(monitor="val_loss")': [
        (_monitor(name), "keep_best=true")
        for name in ("val_loss", "loss/val", "valid_acc", "validation/f1", "eval_loss")
    ],
    "StochasticWeightAveraging": [
        (_callback(callbacks.StochasticWeightAveraging(0.1)), "StochasticWeightAveraging cannot work"),
        (_callback(Average(0.1)), "the callback Average cannot work"),
    ],
    "BackboneFinetuning": [
        (_callback(callbacks.BackboneFinetuning(1)), "BackboneFinetuning cannot work.*requires_grad_"),
        (_callback(Finetuning()), "the callback Finetuning cannot work"),
    ],
    "ModelPruning": [
        (_callback(callbacks.ModelPruning("l1_unstructured", amount=0.5)), "ModelPruning cannot work")
    ],
    "GradientAccumulationScheduler": [
        (_callback(callbacks.GradientAccumulationScheduler({4: 2})), "push_period")
    ],
    "LearningRateFinder": [(_callback(callbacks.LearningRateFinder()), "LearningRateFinder cannot work")],
    "BatchSizeFinder": [
        ({"module": OwnData(), **_callback(callbacks.BatchSizeFinder())}, "BatchSizeFinder cannot work")
    ],
}
if hasattr(callbacks, "WeightAveraging"):
    REFUSED["WeightAveraging"] = [
        (_callback(callbacks.WeightAveraging()), "WeightAveraging cannot work"),
        (_callback(callbacks.EMAWeightAveraging()), "EMAWeightAveraging cannot work"),
    ]

# Row of the table -> (arguments of outcome(), words of the warning); these programs train.
NO_EFFECT = {
    "shuffle=False": [({"train": DataLoader(ROWS, 8)}, "the training DataLoader does not shuffle")],
    "check_val_every_n_epoch": [
        ({"check_val_every_n_epoch": 2}, "check_val_every_n_epoch has no effect"),
        ({"val_check_interval": 0.5}, "val_check_interval has no effect"),
        ({"val_check_interval": datetime.timedelta(minutes=1)}, "val_check_interval has no effect"),
    ],
    "num_nodes": [({"num_nodes": 2}, "num_nodes=2 has no effect")],
    "EarlyStopping": [(_callback(callbacks.EarlyStopping("val_loss", patience=5)), "evaluation.patience=5")],
    "schedules": [
        ({"module": Scheduled()}, r"returns, OneCycleLR, has no effect"),
    ],
}

# Samplers and the samples that they draw in an epoch.
SELECTIONS = [
    (BatchSampler(SubsetRandomSampler([5, 2]), 2, False), [5, 2]),
    (SubsetRandomSampler([3, 9, 1]), [3, 9, 1]),
    (SequentialSampler(range(10)), range(10)),
    (RandomSampler(range(12)), range(12)),
    (RandomSampler(ROWS), range(40)),
]

# Row of the table -> arguments of outcome(), for programs that train without a word.
QUIET = {
    "SubsetRandomSampler": [_loader(SubsetRandomSampler(range(10)))],
    "RandomSampler": [_loader(RandomSampler(ROWS)), {}],
    "ConcatDataset": [{"train": DataLoader(ConcatDataset([ROWS, ROWS]), 8, shuffle=True)}],
    "rates of groups": [{"module": Groups()}],
    "samples_per_epoch": [{"train": DataLoader(Stream(), 8), "strategy": {"samples_per_epoch": 40}}],
    "ModelCheckpoint": [
        _callback(callbacks.ModelCheckpoint()),
        _monitor("train_loss"),
        _monitor("retrieval_accuracy"),
    ],
}

# Rows that the jobs of lightning_test.py hold, and the variants of the program that do.
IN_JOBS = {
    "num_workers": "processes",
    "drop_last=True": "drops",
    "limit_val_batches": "SCORED, subset, loaders",
    "gradient_clip_val": "clip, bfloat16, clip-bfloat16, manual, parts, two, gan",
    "parameters that no": "head",
    "max_epochs": "epochs",
    "Timer": "callbacks",
}


def _paired(count):
    return Pairs(SequentialSampler(range(count)), 2, False)


# Validation loaders, limit_val_batches, and the samples that are scored then.
SCORED = [
    (DataLoader(ROWS, 8), 1.0, 40),
    (DataLoader(ROWS, 16), 1.0, 40),
    (DataLoader(ROWS, 16, drop_last=True), 1.0, 32),
    (DataLoader(ROWS, 16), 2, 32),
    (DataLoader(ROWS, 16), 9, 40),
    (DataLoader(ROWS, 8), 0.5, 16),
    (DataLoader(ROWS, 8, sampler=SubsetRandomSampler(range(10))), 1.0, 10),
    (DataLoader(ROWS, 8, sampler=WeightedRandomSampler([1.0] * 40, 100)), 1.0, 100),
    (DataLoader(ROWS, batch_sampler=BatchSampler(SequentialSampler(range(12)), 5, True)), 1.0, 10),
    (DataLoader(ROWS, batch_sampler=_paired(12)), 1.0, 12),
    (DataLoader(ROWS, batch_sampler=_paired(12)), 4, 8),
]
