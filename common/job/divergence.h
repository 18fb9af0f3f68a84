// How the reason of a job that has failed says that its training has diverged. Comparisons recognize it in summary.json.
#ifndef CATCHMENT_COMMON_JOB_DIVERGENCE_H_
#define CATCHMENT_COMMON_JOB_DIVERGENCE_H_

namespace catchment {

inline constexpr char kTrainingHasDiverged[] = "training has diverged";

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_DIVERGENCE_H_
