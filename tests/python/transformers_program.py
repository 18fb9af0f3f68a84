"""The programs of transformers_test.py: python transformers_program.py ROWS VARIANT. Without a worker it
trains by itself, and prints the final weights as JSON."""

import json
import os
import sys
import warnings

import torch
import transformers
from torch import nn
from torch.nn import functional as F

EPOCHS = 15


class Config(transformers.PretrainedConfig):
    model_type = "small"


class Classifier(transformers.PreTrainedModel):
    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        torch.manual_seed(4)
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
        self.factor = 1.0
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(self, x, labels=None):
        z = self.layers(x)
        if labels is None:  # with label smoothing the Trainer computes the loss
            return {"logits": z}
        return {"loss": F.cross_entropy(z, labels) * self.factor, "logits": z}


class Rows(torch.utils.data.Dataset):
    def __init__(self, path):
        self._rows = [list(map(float, line.split(","))) for line in open(path)]

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, index):
        row = self._rows[index]
        return {"x": torch.tensor(row[:-1]), "labels": int(row[-1]), "unused": "text"}


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self._rows = rows

    def __iter__(self):
        return (self._rows[index] for index in range(len(self._rows)))


class Steps(transformers.TrainerCallback):
    """Records what the loop tells callbacks of its epochs."""

    def __init__(self):
        self.seen = []

    def on_epoch_begin(self, args, state, control, **named):
        self.seen.append(["begins", state.global_step, state.num_train_epochs])

    def on_epoch_end(self, args, state, control, **named):
        self.seen.append(["ends", round(state.epoch, 6), state.global_step])


class Stop(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **named):
        control.should_training_stop = state.global_step == 3


class Counts(transformers.TrainerCallback):
    """Scales the gradients of the first steps, and counts what it sees."""

    def __init__(self):
        self.steps = self.substeps = 0

    def on_pre_optimizer_step(self, args, state, control, model=None, **named):
        self.substeps += 1
        if self.substeps < 5:
            for p in model.parameters():
                p.grad.mul_(0.5)

    def on_step_end(self, args, state, control, **named):
        self.steps += 1
        assert self.steps == self.substeps == state.global_step, (
            self.steps,
            self.substeps,
            state.global_step,
        )


def smooth_loss(outputs, labels, num_items_in_batch=None):
    """A loss that is given to the Trainer."""
    return F.cross_entropy(outputs["logits"], labels, label_smoothing=0.2)


def with_own_loss(kind):
    class WithOwnLoss(kind):
        """Overrides what the Trainer's documentation says to override for a loss of one's own."""

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs)
            loss = outputs["loss"] + 0.01 * outputs["logits"].square().mean()
            return (loss, outputs) if return_outputs else loss

    return WithOwnLoss


def with_own_sampler(kind):
    class WithOwnSampler(kind):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SubsetRandomSampler(range(0, 240, 2))

    return WithOwnSampler


def with_own_optimizer(kind):
    class WithOwnOptimizer(kind):
        def create_optimizer(self, model=None):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
            return self.optimizer

    return WithOwnOptimizer


CALLBACKS = {
    "callback": [Counts()],
    "stops": [Stop()],
    "stops-early": [transformers.EarlyStoppingCallback(3)],
}


def train_by_trainer(module, rows, variant, directory):
    size = {"subset": 120, "epochs": 50}.get(variant, len(rows))
    arguments = transformers.TrainingArguments(
        output_dir=directory,
        num_train_epochs=3 if variant == "epochs" else EPOCHS,
        per_device_train_batch_size=size,
        max_steps=EPOCHS if variant == "stream" else -1,
        learning_rate=0.1,
        optim="sgd",
        lr_scheduler_type="constant",
        max_grad_norm=0.05 if variant == "clip" else 0,
        gradient_accumulation_steps=2 if variant == "accumulates" else 1,
        dataloader_num_workers=int(variant == "processes"),
        label_smoothing_factor=0.1 if variant == "smooth" else 0,
        bf16=variant == "bfloat16",
        eval_strategy="steps" if variant in ("evaluates", "stops-early") else "no",
        eval_steps=2,
        metric_for_best_model="loss",
        load_best_model_at_end=False,
        save_strategy="epoch" if variant in ("save", "epochs") else "no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=10,
    )
    kind, options = transformers.Trainer, {}
    if in_job():
        import catchment.transformers

        kind, options = catchment.transformers.Trainer, {"local_optimizer": variant.startswith("local")}
    if variant == "own-loss":
        kind = with_own_loss(kind)
    if variant == "loss-function":
        options["compute_loss_func"] = smooth_loss
    if variant == "subset":
        kind = with_own_sampler(kind)
    if variant == "local-own":
        kind = with_own_optimizer(kind)
    if variant == "stream" and in_job():
        options["samples_per_epoch"] = len(rows)
    if variant == "model-init":
        options["model_init"], module = lambda: Classifier(Config()), None
    evaluated, steps = rows, Steps()
    if variant == "sets":
        evaluated = {
            name: torch.utils.data.Subset(rows, part)
            for name, part in (("a", range(60)), ("b", range(60, 240)))
        }
    if variant == "epochs":
        CALLBACKS["epochs"] = [steps]
    trainer = kind(
        module,
        arguments,
        train_dataset=Stream(rows) if variant == "stream" else rows,
        eval_dataset=evaluated,
        compute_metrics=lambda scored: {
            "accuracy": (97 if variant == "percent" else 1)
            * (scored.predictions.argmax(1) == scored.label_ids).mean()
        },
        callbacks=CALLBACKS.get(variant, []),
        **options,
    )
    if variant == "diverges":
        module.factor = float("nan")
    trainer.train(resume_from_checkpoint=directory if variant == "resumes" else None)
    if variant == "epochs":
        print("epochs " + json.dumps(steps.seen))
    if variant == "writes":
        trainer.save_model(os.path.join(directory, "written-%d" % os.getpid()))
    return trainer.model


def train_by_accelerate(module, rows):
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    if in_job():
        import catchment.torch as catchment

        worker = catchment.join(module, rows)
        optimizer, scheduler = worker.optimizer(), worker.scheduler()
        loader = worker.loader()
        module, optimizer, scheduler = accelerator.prepare(module, optimizer, scheduler)
    else:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)
        loader = torch.utils.data.DataLoader(
            torch.utils.data.ConcatDataset([rows] * EPOCHS), batch_size=len(rows)
        )
        module, optimizer, scheduler, loader = accelerator.prepare(module, optimizer, scheduler, loader)
    for minibatch in loader:
        loss = module(minibatch["x"], minibatch["labels"])["loss"]
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()


def accumulate_by_accelerate(module, rows, variant):
    """The loop of Accelerate's first examples, which prepare all of it."""
    import accelerate

    accumulated = 2 if variant == "accelerate-accumulates" else 1
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    if in_job():
        import catchment.torch as catchment

        worker = catchment.join(module, rows)
        optimizer, scheduler = worker.optimizer(), worker.scheduler()
        loader = (
            torch.utils.data.DataLoader(worker.minibatches(), batch_size=None, num_workers=1)
            if variant == "accelerate-own-loader"
            else worker.loader(num_workers=1)
        )
    else:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1)
        loader = torch.utils.data.DataLoader(
            torch.utils.data.ConcatDataset([rows] * EPOCHS), batch_size=len(rows)
        )
    model, optimizer, loader, scheduler = accelerator.prepare(module, optimizer, loader, scheduler)
    model.train()
    for step, minibatch in enumerate(loader):
        with accelerator.accumulate(model):
            loss = model(minibatch["x"], minibatch["labels"])["loss"]
            accelerator.backward(loss)
            if variant != "accelerate-by-hand" or step % 2:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()


def in_job():
    return "CATCHMENT_ATTACH" in os.environ or "CATCHMENT_DESCRIBE" in os.environ


def main():
    path, variant = sys.argv[1:3]
    warnings.simplefilter("ignore")
    warnings.filterwarnings("always", "per_device_train_batch_size")
    rows, module = Rows(path), Classifier(Config())
    if variant == "accelerate":
        train_by_accelerate(module, rows)
    elif variant.startswith("accelerate"):
        accumulate_by_accelerate(module, rows, variant)
    else:
        module = train_by_trainer(module, rows, variant, os.path.dirname(path))
    print(
        "weights "
        + json.dumps({name: p.detach().flatten().tolist() for name, p in module.named_parameters()})
    )


if __name__ == "__main__":
    main()
