// Clipping by the global norm, as torch.nn.utils.clip_grad_norm_:
//   g *= min(1, max_norm / (|g| + 1e-6))      |g|: the Euclidean norm over the whole vector
// The norm is summed up in double precision. A NaN in g makes all of it NaN, as in PyTorch, so that servers
// refuse all of the contribution and not some blocks of it.
#ifndef CATCHMENT_WORKER_ALGORITHMS_CLIP_NORM_H_
#define CATCHMENT_WORKER_ALGORITHMS_CLIP_NORM_H_

#include "absl/types/span.h"

namespace catchment {

void ClipNorm(float max_norm, absl::Span<float> g);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_CLIP_NORM_H_
