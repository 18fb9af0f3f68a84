// Reads initial weights from a file (Job.model.initial_weights).
#ifndef CATCHMENT_COMMON_CHECKPOINT_INITIAL_WEIGHTS_H_
#define CATCHMENT_COMMON_CHECKPOINT_INITIAL_WEIGHTS_H_

#include <string>

#include "absl/status/status.h"
#include "common/job/parameter_layout.h"

namespace catchment {

// Reads values range.begin .. range.end-1 of the flat parameter vector to out[0 .. range.size()-1]. Ignores
// tensors of the file that are not in `layout`. Errors: InvalidArgument if any tensor of the model is missing
// in the file or has another shape there, or if a value in the range is NaN or infinite; errors of
// SafetensorsFile. All name model.initial_weights.
absl::Status ReadInitialWeights(const std::string& path, const ParameterLayout& layout, Range range,
                                float* out);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_INITIAL_WEIGHTS_H_
