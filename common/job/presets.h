// The presets of Algorithm.preset, each a name for a choice on the axes with a suitable optimizer, and the
// defaults of jobs.
#ifndef CATCHMENT_COMMON_JOB_PRESETS_H_
#define CATCHMENT_COMMON_JOB_PRESETS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace catchment {

struct Preset {
  std::string name;
  std::string when;  // to choose it: one sentence
  v1::Algorithm algorithm;
  v1::Optimizer optimizer;
  // The delay limits the step: a contribution is about as many updates old as the workers need to send one
  // each. With more than few_workers the default of learning_rate / (1 - momentum) is at most this divided by
  // that number of updates. 0: it is the same for every number of workers.
  double step_times_delay = 0;
  // The largest number of workers with which the preset's fields are used unchanged. With more than 4,
  // asynchrony alone acts like a momentum of 0.8 or more (arXiv:1605.09774).
  uint32_t few_workers = 4;
};

// Returns the most that learning_rate / (1 - momentum) is by default in a job whose algorithm is filled in;
// nothing if that is not less than the preset's own.
std::optional<double> StepLimit(const Preset& preset, const v1::Job& job);

const std::vector<Preset>& Presets();

// Returns null if there is no preset with that name.
const Preset* FindPreset(const std::string& name);

// Returns their names, in the order of Presets().
std::vector<std::string> PresetNames();

// Returns "sync, downpour, ...".
std::string ListPresets();

// Describes the error of a preset that does not exist: "no preset "async"; did you mean downpour? there are
// sync, ...". Knows names that other systems have for an algorithm, and misspelled ones.
std::string UnknownPreset(const std::string& name);

// Returns the defaults of the optimizer of a job whose algorithm is filled in. If the learning rate follows
// the workers (StepLimit), the momentum is 0, unless the compensation or a field of the job's optimizer needs
// it, and little with delayed_nesterov.
v1::Optimizer OptimizerFor(const Preset& preset, const v1::Job& job);

// Sets the fields that the job's algorithm and optimizer leave out. If the job names another kind of
// contribution than the preset, the optimizer is that of the first preset with its contribution, if possible
// with as many groups too. An optimizer of another kind than the preset's takes nothing but the schedule from
// it.
void ApplyPreset(const Preset& preset, v1::Job* job);

// Sets every optional field that has a meaning for the job to its default; beta1, for example, remains unset
// for SGD. Calling it again changes nothing. It fills in the fields of layers; their names are set by
// FillDefaultsAndValidate.
void FillDefaults(const Preset& preset, v1::Job* job);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_PRESETS_H_
