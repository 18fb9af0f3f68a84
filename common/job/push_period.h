// How often a worker contributes.
#ifndef CATCHMENT_COMMON_JOB_PUSH_PERIOD_H_
#define CATCHMENT_COMMON_JOB_PUSH_PERIOD_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace catchment {

// Steps of one worker from one of its contributions to the next, with all defaults filled in at least 1. In
// synchronous mode as many steps make a version.
inline uint32_t PushPeriod(const v1::Contribution& contribution) {
  switch (contribution.kind_case()) {
    case v1::Contribution::kGradient:
      return contribution.gradient().push_period();
    case v1::Contribution::kElastic:
      return contribution.elastic().communication_period();
    case v1::Contribution::kPseudoGradient:
      return contribution.pseudo_gradient().local_steps();
    default:
      return 1;
  }
}

// Returns whether a worker makes its contribution at the start of a period, of the steps before it, rather
// than at the end.
inline bool ContributesFirst(const v1::Contribution& contribution) { return contribution.has_elastic(); }

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_PUSH_PERIOD_H_
