// The presets of Algorithm.preset: a name for a choice on the axes, with an optimizer that fits it.
#ifndef CATCHMENT_COMMON_JOB_PRESETS_H_
#define CATCHMENT_COMMON_JOB_PRESETS_H_

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace catchment {

struct Preset {
  std::string name;
  std::string when;  // to pick it: one sentence
  v1::Algorithm algorithm;
  v1::Optimizer optimizer;
};

const std::vector<Preset>& Presets();

// Null when there is none of that name.
const Preset* FindPreset(const std::string& name);

// "sync, downpour, ..."
std::string ListPresets();

// Sets what the job's algorithm and optimizer leave out. Where the job names another kind of contribution than the
// preset, the optimizer is that of the first preset with its contribution, if possible with its groups too. An
// optimizer of another kind than the preset's takes nothing but the schedule from it.
void ApplyPreset(const Preset& preset, v1::Job* job);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_PRESETS_H_
