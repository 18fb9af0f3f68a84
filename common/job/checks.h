// The checks of a job, one file for each part of it. Only for common/job.
#ifndef CATCHMENT_COMMON_JOB_CHECKS_H_
#define CATCHMENT_COMMON_JOB_CHECKS_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/job/parameter_layout.h"
#include "common/job/problems.h"
#include "optim/optimizer.h"
#include "proto/job.pb.h"

// Sets field `name` of *message unless it is set.
#define CATCHMENT_DEFAULT(message, name, value)                 \
  do {                                                          \
    if (!(message)->has_##name()) (message)->set_##name(value); \
  } while (false)

namespace catchment {

// Returns the name of the kind that is set in an axis of the algorithm: "synchronous".
template <typename Axis>
const std::string& KindName(const Axis& axis) {
  return Axis::descriptor()->FindFieldByNumber(axis.kind_case())->name();
}

// Each function checks its part of a job whose defaults are filled in.
void CheckComputation(const v1::Job& job, Problems* problems);

// Checks algorithm.consistency and optimizer.worker_scaling.
void CheckConsistency(const v1::Job& job, Problems* problems);

// Checks ranges, that there are test samples, with classes if accuracy is needed, and that the job is not
// deterministic.
void CheckEvaluation(const v1::Job& job, Problems* problems);

// Checks model.external and data.external, of which the job has at least one.
void CheckExternal(const v1::Job& job, Problems* problems);

// Checks optimizer.groups. `tensors`: the model's; empty if they are not known.
void CheckGroups(const v1::Job& job, const std::vector<TensorSpec>& tensors, Problems* problems);

// Returns the names of the kinds that `fits` accepts: "SGD, ADAGRAD or ADAM".
std::string ListOptimizerKinds(absl::FunctionRef<bool(const OptimizerKind&)> fits);

// Checks that the optimizer's kind has each field that is set, the range of each field, and, with `elastic`,
// what contribution elastic does not allow.
void CheckOptimizer(const v1::Optimizer& optimizer, bool elastic, Problems* problems);

// Checks that there is a test loss, that the servers apply the learning rate, and that the job is not
// deterministic.
void CheckPlateau(const v1::Job& job, Problems* problems);

void CheckTable(const v1::FileDataset& table, Problems* problems);

// Returns true if the table says what samples and targets are, so that a model can be checked against them.
bool SaysItsShape(const v1::FileDataset& table);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CHECKS_H_
