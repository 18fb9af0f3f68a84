"""The features of programs with Hugging Face's Trainer, and what becomes of them in a job: a case for each
row of the tables in docs/lightning.md that a program meets when train() begins, before it joins a job."""

import tempfile
import warnings

import torch
import transformers
from torch.utils.data import IterableDataset, SubsetRandomSampler, WeightedRandomSampler

import catchment.transformers
from transformers_program import Classifier, Config

ROWS = [{"x": torch.rand(6), "labels": 0} for _ in range(40)]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(ROWS)


def _sampled(sampler):
    class WithSampler(catchment.transformers.Trainer):
        def _get_train_sampler(self, *_):
            return sampler

    return {"kind": WithSampler}


def _overrides(name):
    return {"kind": type("WithOwn", (catchment.transformers.Trainer,), {name: lambda self, *_, **__: None})}


def outcome(kind=catchment.transformers.Trainer, arguments=None, **trainer):
    """Returns the warnings of a train(), with the files of their lines, and the error with which it ends;
    without a worker it cannot join."""
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            trainer = {"train_dataset": ROWS, **trainer}
            if "model_init" not in trainer:
                trainer["model"] = Classifier(Config())
            kind(
                args=transformers.TrainingArguments(directory, use_cpu=True, report_to=[], **arguments or {}),
                **trainer,
            ).train()
            error = None
        except Exception as raised:
            error = raised
    return "\n".join("%s: %s" % (one.filename, one.message) for one in warned), error


def _optimizers():
    return torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1), None


# Row of the table -> (arguments of outcome(), words of the error)
REFUSED = {
    "_get_train_sampler": [
        (
            _sampled(WeightedRandomSampler([1.0] * 40, 40)),
            "_get_train_sampler.*WeightedRandomSampler.*into the loss",
        )
    ],
    "group_by_length": [
        ({"arguments": {"train_sampling_strategy": name}}, "train_sampling_strategy is '%s'" % name)
        for name in ("group_by_length", "batch_rebalance")
    ],
    "get_train_dataloader": [
        (_overrides("get_train_dataloader"), r"WithOwn overrides get_train_dataloader\(\)")
    ],
    "create_optimizer": [
        (_overrides(name), r"WithOwn overrides %s\(\), .*local_optimizer=True" % name)
        for name in ("create_optimizer", "create_scheduler", "create_optimizer_and_scheduler")
    ],
    "optimizers": [
        ({"optimizers": _optimizers()}, r"Trainer\(optimizers=...\) has no effect"),
        ({"optimizer_cls_and_kwargs": (torch.optim.SGD, {"lr": 0.1})}, "optimizer_cls_and_kwargs="),
    ],
    "gradient_accumulation_steps": [({"arguments": {"gradient_accumulation_steps": 2}}, "push_period=2")],
    "load_best_model_at_end": [
        (
            {
                "arguments": {
                    "load_best_model_at_end": True,
                    "eval_strategy": "steps",
                    "save_strategy": "steps",
                },
                "eval_dataset": ROWS,
            },
            "load_best_model_at_end needs evaluations.*keep_best=true",
        ),
        (
            {
                "arguments": {
                    "save_strategy": "best",
                    "metric_for_best_model": "loss",
                    "eval_strategy": "epoch",
                },
                "eval_dataset": ROWS,
            },
            'save_strategy="best" needs evaluations',
        ),
    ],
    "EarlyStoppingCallback": [
        ({"callbacks": [transformers.EarlyStoppingCallback(3)]}, "evaluation.patience=3")
    ],
    "auto_find_batch_size": [
        ({"arguments": {"auto_find_batch_size": True}}, "auto_find_batch_size has no effect")
    ],
    "logging_steps": [
        ({"arguments": {"logging_steps": 0.1}}, "logging_steps is 0.1, a share"),
        ({"arguments": {"save_steps": 0.2}}, "save_steps is 0.2, a share"),
    ],
    "an eval_dataset without a length": [
        ({"eval_dataset": {"a": ROWS, "b": Stream()}}, r"eval_dataset\['b'\] \(Stream\) has no length")
    ],
    "IterableDataset": [
        ({"train_dataset": Stream(), "arguments": {"max_steps": 3}}, r"Trainer\(samples_per_epoch=")
    ],
}

# Row of the table -> (arguments of outcome(), words of the warning); these programs train.
NO_EFFECT = {
    "learning_rate": [
        (
            {"arguments": {"learning_rate": 0.25, "lr_scheduler_type": "cosine", "warmup_steps": 7}},
            "learning_rate=0.25, lr_scheduler_type=cosine, warmup_steps=7",
        ),
        (
            {"arguments": {"optim": "sgd", "adam_beta1": 0.5}},
            "optim=sgd, adam_beta1=0.5",
        ),
    ],
    "num_train_epochs": [
        ({"arguments": {"num_train_epochs": 7, "max_steps": 9}}, "num_train_epochs=7, max_steps=9")
    ],
    "eval_strategy": [
        (
            {"arguments": {"eval_strategy": "steps", "eval_steps": 5}, "eval_dataset": ROWS},
            "eval_strategy=steps, eval_steps=5",
        )
    ],
    "samples_per_epoch": [
        ({"train_dataset": Stream(), "samples_per_epoch": 40, "arguments": {"max_steps": 3}}, "max_steps=3")
    ],
    "local_optimizer": [
        ({"local_optimizer": True}, "the local optimizer keeps its learning rate.*lr_scheduler_type=linear")
    ],
    "data_seed": [({"arguments": {"data_seed": 5}}, "data_seed=5")],
    "dataloader_drop_last": [({"arguments": {"dataloader_drop_last": True}}, "last_minibatch=DROP")],
    "sequential": [({"arguments": {"train_sampling_strategy": "sequential"}}, "does not shuffle")],
}

# Row of the table -> arguments of outcome(), for programs that train without a word.
QUIET = {
    "SubsetRandomSampler": [_sampled(SubsetRandomSampler(range(9)))],
    "model_init": [{"model_init": lambda: Classifier(Config())}],
    "a dict as eval_dataset": [{"eval_dataset": {"a": ROWS, "b": ROWS}}],
    "compute_loss_func": [{"compute_loss_func": lambda outputs, labels, **_: outputs["logits"].sum()}],
    "weight_decay": [{"arguments": {"weight_decay": 0.5}}],
    "max_grad_norm": [{"arguments": {"max_grad_norm": 0.5, "label_smoothing_factor": 0.1, "seed": 3}}],
}

# Rows that the jobs of transformers_test.py hold, and the variants of the program that do.
IN_JOBS = {
    "bf16": "bfloat16",
    "data_collator": "plain, processes",
    "save_strategy": "save, epochs, writes",
    "per_device_train_batch_size": "plain",
    "average_tokens_across_devices": "plain",
    "resume_from_checkpoint": "resumes",
}
