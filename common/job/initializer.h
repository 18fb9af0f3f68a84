// Initializes the weights.
//
// LayerShape::initial has the distribution of each tensor. A value depends only on (seed, tensor, element),
// so that the model is the same for any number of servers.
#ifndef CATCHMENT_COMMON_JOB_INITIALIZER_H_
#define CATCHMENT_COMMON_JOB_INITIALIZER_H_

#include <cstdint>
#include <vector>

#include "common/job/model_shapes.h"
#include "common/job/parameter_layout.h"

namespace catchment {

// Writes values range.begin .. range.end-1 of the flat parameter vector to out[0 .. range.size()-1]. The
// range must lie within the model's parameters.
void InitializeParameters(const std::vector<LayerShape>& layers, uint64_t seed, Range range, float* out);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_INITIALIZER_H_
