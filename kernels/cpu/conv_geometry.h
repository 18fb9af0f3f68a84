// The shapes of a convolution in the form that oneDNN needs.
#ifndef CATCHMENT_KERNELS_CPU_CONV_GEOMETRY_H_
#define CATCHMENT_KERNELS_CPU_CONV_GEOMETRY_H_

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dnnl.hpp"
#include "kernels/backend.h"

namespace catchment {

struct ConvGeometry {
  using Dims = dnnl::memory::dims;

  explicit ConvGeometry(const KernelSpec& spec)
      : source{spec.batch_size, spec.layer.input.channels, spec.layer.input.height, spec.layer.input.width},
        output{spec.batch_size, spec.layer.output.channels, spec.layer.output.height,
               spec.layer.output.width},
        weight{output[1], source[1], spec.layer.kernel_size, spec.layer.kernel_size},
        bias{output[1]},
        groups(spec.layer.groups),
        has_bias(spec.layer.bias),
        stride{spec.layer.stride, spec.layer.stride},
        padding{spec.layer.padding, spec.layer.padding} {
    if (groups == 1) return;
    weight[0] /= groups;
    weight[1] /= groups;
    weight.insert(weight.begin(), groups);
  }

  int64_t kernel_size() const { return weight.back(); }
  int64_t weight_size() const {
    return std::accumulate(weight.begin(), weight.end(), int64_t{1}, std::multiplies<>());
  }
  int64_t num_parameters() const { return weight_size() + (has_bias ? bias[0] : 0); }

  // Returns a text that is equal for convolutions that differ only in the batch size.
  std::string Key() const {
    return absl::StrCat(absl::StrJoin(weight, "x"), " over ", source[2], "x", source[3], " stride ",
                        stride[0], " padding ", padding[0]);
  }

  Dims source, output;  // N x C x H x W
  Dims weight;          // filters x channels x k x k; with groups, groups x the weight of one group
  Dims bias;
  int64_t groups;
  bool has_bias;
  Dims stride, padding;
};

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CONV_GEOMETRY_H_
