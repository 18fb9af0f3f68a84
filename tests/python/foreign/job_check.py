"""Refuses jobs that this client would train otherwise than they say: docs/wire_protocol.md,
"Fields of the job"."""

from model import Unsupported

# Paths, with all that is below them, that this client follows.
FOLLOWED = [
    "model.layers.name",
    "model.layers.dense.units",
    "model.layers.relu",
    "data.table.train",
    "data.table.shape",
    "data.table.classes",
    "algorithm.contribution.gradient",
    "algorithm.contribution.elastic",
    "algorithm.contribution.pseudo_gradient",
    "seed",
    "block_kib",
    "compression",
    "faults.connect_timeout_seconds",
]
# The fields that the servers and the master follow.
OTHERS = [
    "name",
    "shared_memory",
    "batch_size",
    "epochs",
    "samples",
    "updates",
    "workers",
    "deterministic",
    "evaluation",
    "faults",
    "device",
    "model.initial_weights",
    "algorithm.preset",
    "algorithm.consistency",
    "algorithm.compensation",
    "data.loader_threads",
    "data.table.test",
    "data.table.directory",
    "data.table.features",
    "data.table.labels",
    "checkpoint",
    "optimizer",
    "computation",
    "last_minibatch",
]
# Fields of which this client can do nothing but these values.
ONLY = {
    "model.loss.kind": [1],
    "model.loss.label_smoothing": [0.0],
    "model.layers.dense.bias": [True],
    "data.table.label_columns": [0],
    "model.layers.dense.initializer": range(6),
    "checkpoint.worker_state": [False],
}
# With `pseudo_gradient`: the whole model at a time, without overlap, and SGD with CONSTANT or COSINE for its
# own steps.
PSEUDO = "algorithm.contribution.pseudo_gradient."
ONLY.update(
    {
        PSEUDO + "fragments": [1],
        PSEUDO + "overlap_steps": [0],
        PSEUDO + "blend": [0.0],
        PSEUDO + "steps_by_speed": [False],
        PSEUDO + "local_optimizer.kind": [1],
        PSEUDO + "local_optimizer.nesterov": [False],
        PSEUDO + "local_optimizer.weight_decay": [0.0],
        PSEUDO + "local_optimizer.schedule.decay": [1, 2],
    }
)
# With `elastic`, where the optimizer is the worker's. SGD; CONSTANT and COSINE.
ONLY_ELASTIC = {"optimizer.kind": [1], "optimizer.schedule.decay": [1, 2]}


def check(job):
    elastic = job.algorithm.contribution.WhichOneof("kind") == "elastic"
    only = dict(ONLY, **(ONLY_ELASTIC if elastic else {}))
    for path, value in set_fields(job, ""):
        if path in only:
            if value not in only[path]:
                raise Unsupported("this client cannot do %s: %s" % (path, value))
        elif not any(path == known or path.startswith(known + ".") for known in FOLLOWED + OTHERS):
            raise Unsupported("this client does not know what to do with %s" % path)
    if job.optimizer.HasField(
        "clip_norm"
    ) or job.algorithm.contribution.pseudo_gradient.local_optimizer.HasField("clip_norm"):
        raise Unsupported("this client does not clip gradients (optimizer.clip_norm)")
    contribution = job.algorithm.contribution
    own_steps = contribution.WhichOneof("kind") != "gradient" or contribution.gradient.local_learning_rate > 0
    if job.optimizer.groups and own_steps:
        raise Unsupported("this client has one rate for all parameters (optimizer.groups)")
    if job.faults.stragglers:
        raise Unsupported("this client cannot be slowed down (faults.stragglers)")
    if job.optimizer.kind in (7, 8, 9):
        raise Unsupported("this client does not have the layout of LARS, LAMB and LARC (optimizer.kind)")
    if any(not name.startswith("/") for name in job.data.table.train):
        raise Unsupported("this client takes whole paths only (data.table.train)")


def set_fields(message, prefix):
    """Yields the path and the value of every field that is set,
    and fails for what job.proto does not have."""
    if len(message.UnknownFields()) > 0:
        raise Unsupported("%s has a field that this client does not know" % (prefix or "the job"))
    for field, value in message.ListFields():
        path = prefix + field.name
        for one in value if field.label == field.LABEL_REPEATED else [value]:
            if field.message_type is not None and (one.ListFields() or len(one.UnknownFields())):
                yield from set_fields(one, path + ".")
                continue
            if field.enum_type is not None and one not in field.enum_type.values_by_number:
                raise Unsupported("%s has value %d, which this client does not know" % (path, one))
            yield path, one
