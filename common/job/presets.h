// The presets of Algorithm.preset: a name for a choice on the axes, with an optimizer that fits it.
#ifndef CATCHMENT_COMMON_JOB_PRESETS_H_
#define CATCHMENT_COMMON_JOB_PRESETS_H_

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace catchment {

struct Preset {
  const char* name;
  const char* when;  // to pick it: one sentence
  uint32_t groups;   // 1: synchronous, 0: asynchronous
  v1::Contribution::KindCase contribution;
  // Of SGD, the kind that every preset has. Other kinds that a job asks for have their own learning rates.
  float learning_rate;
  float momentum;
  bool nesterov;
};

const std::vector<Preset>& Presets();

// Null when there is none of that name.
const Preset* FindPreset(const std::string& name);

// "sync, downpour, ..."
std::string ListPresets();

// Sets what the job's algorithm and optimizer leave out. A job whose contribution is of another kind than the
// preset's takes the optimizer of the first preset that has its groups and contribution.
void ApplyPreset(const Preset& preset, v1::Job* job);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_PRESETS_H_
