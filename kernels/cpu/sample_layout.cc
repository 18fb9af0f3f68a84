#include "kernels/cpu/sample_layout.h"

#include <utility>

#include "absl/status/status.h"
#include "kernels/cpu/context.h"

namespace catchment {

absl::StatusOr<SampleLayout> LayoutOfSample(const dnnl::memory::desc& layout) {
  using tag = dnnl::memory::format_tag;
  const auto dims = layout.dims();
  if (layout == PlainLayout(dims)) {
    int64_t positions = 1;
    for (size_t i = 2; i < dims.size(); ++i) positions *= dims[i];
    return dims.size() == 2 ? SampleLayout{1, 1, dims[1]} : SampleLayout{dims[1], positions, 1};
  }
  const std::pair<tag, int64_t> candidates[] = {
      {tag::nhwc, dims[1]}, {tag::nChw4c, 4}, {tag::nChw8c, 8}, {tag::nChw16c, 16}};
  for (const auto& [format, block] : candidates) {
    if (dims.size() == 4 && layout == dnnl::memory::desc(dims, dnnl::memory::data_type::f32, format)) {
      return SampleLayout{(dims[1] + block - 1) / block, dims[2] * dims[3], block};
    }
  }
  return absl::UnimplementedError("oneDNN chose a memory layout that this program does not know");
}

}  // namespace catchment
