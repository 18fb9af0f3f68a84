#ifndef CATCHMENT_COMMON_CODEC_ERROR_FEEDBACK_H_
#define CATCHMENT_COMMON_CODEC_ERROR_FEEDBACK_H_

#include "proto/job.pb.h"

namespace catchment {

// Returns true for codecs whose encoder keeps a residual, which is everything that earlier payloads lost, and
// adds it to the next contribution. They are for pushes only.
inline bool HasErrorFeedback(v1::Compression::Codec codec) {
  switch (codec) {
    case v1::Compression::TOP_K:
    case v1::Compression::INT8:
    case v1::Compression::E2M1:
    case v1::Compression::E3M0:
      return true;
    default:
      return false;
  }
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_ERROR_FEEDBACK_H_
