// Tells an attached program the samples of each coming minibatch, when its plan passes by.
#ifndef CATCHMENT_WORKER_ATTACH_ANNOUNCED_PLANS_H_
#define CATCHMENT_WORKER_ATTACH_ANNOUNCED_PLANS_H_

#include "worker/attach/attached_model.h"
#include "worker/data/batch_loader.h"
#include "worker/data/epoch_order.h"

namespace catchment {

// Returns a function that does what `next` does, and passes each minibatch that has samples to `model`.
// `order` is over the whole training set. Errors: those of `next` and of AttachedModel::Plan. A span outside
// the training set is left to the loader to refuse.
NextPlan AnnouncePlans(NextPlan next, EpochOrder order, AttachedModel* model);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ATTACH_ANNOUNCED_PLANS_H_
