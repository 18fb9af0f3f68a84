// Weights that training starts from, out of a file: Job.model.initial_weights.
#ifndef CATCHMENT_COMMON_CHECKPOINT_INITIAL_WEIGHTS_H_
#define CATCHMENT_COMMON_CHECKPOINT_INITIAL_WEIGHTS_H_

#include <string>

#include "absl/status/status.h"
#include "common/parameter_layout.h"

namespace catchment {

// Reads values range.begin .. range.end-1 of the flat parameter vector to out[0 .. range.size()-1]. Tensors
// of the file that `layout` does not have are left aside. Errors: InvalidArgument for a tensor that the file
// lacks or has in another shape, anywhere in the model, and for a NaN or an infinity in what is read; those
// of SafetensorsFile. All name model.initial_weights.
absl::Status ReadInitialWeights(const std::string& path, const ParameterLayout& layout, Range range,
                                float* out);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_INITIAL_WEIGHTS_H_
