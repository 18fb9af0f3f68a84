// The words by which a failed job's reason says that training diverged. Comparisons look for them in
// summary.json.
#ifndef CATCHMENT_COMMON_JOB_DIVERGENCE_H_
#define CATCHMENT_COMMON_JOB_DIVERGENCE_H_

namespace catchment {

inline constexpr char kTrainingHasDiverged[] = "training has diverged";

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_DIVERGENCE_H_
