#include "kernels/cpu/activation.h"

#include <utility>

#include "absl/status/status.h"

namespace catchment {

dnnl::memory::dims DimsOf(const SampleShape& shape, int64_t batch_size) {
  switch (shape.kind) {
    case SampleKind::kImage:
      return {batch_size, shape.channels, shape.height, shape.width};
    case SampleKind::kVector:
      return {batch_size, shape.channels};
    case SampleKind::kSequence:
      return {batch_size, shape.channels, shape.width};
  }
  return {};
}

ReadPort::ReadPort(CpuContext* context, const dnnl::memory& from, const dnnl::memory::desc& wanted)
    : memory_(from) {
  if (from.get_desc() == wanted) return;
  memory_ = context->Allocate(wanted);
  copy_ = MakeReorder(context, from, memory_);
}

WritePort::WritePort(CpuContext* context, const dnnl::memory& to, const dnnl::memory::desc& wanted)
    : memory_(to) {
  if (to.get_desc() == wanted) return;
  memory_ = context->Allocate(wanted);
  copy_ = MakeReorder(context, memory_, to);
}

ParameterPort::ParameterPort(CpuContext* context, const dnnl::memory::dims& dims,
                             const dnnl::memory::desc& wanted)
    : flat_(context->Unbound(PlainLayout(dims))), wanted_(flat_) {
  if (wanted == flat_.get_desc()) return;
  wanted_ = context->Allocate(wanted);
  reorder_ = MakeReorder(context, flat_, wanted_);
}

void ParameterPort::Pull(const float* parameters) {
  // oneDNN has no type for memory of const values; this memory is only read.
  flat_.set_data_handle(const_cast<float*>(parameters));
  if (reorder_) reorder_->Run();
}

GradientPort::GradientPort(CpuContext* context, const dnnl::memory::dims& dims,
                           const dnnl::memory::desc& wanted)
    : flat_(context->Unbound(PlainLayout(dims))), wanted_(flat_) {
  if (wanted == flat_.get_desc()) return;
  wanted_ = context->Allocate(wanted);
  reorder_ = MakeReorder(context, wanted_, flat_);
}

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
