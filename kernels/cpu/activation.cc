#include "kernels/cpu/activation.h"

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

InputPort::InputPort(CpuContext* context, const CpuActivation* activation, const dnnl::memory::desc& wanted)
    : value_(activation->value()), gradient_(activation->gradient()) {
  if (activation->layout() == wanted) return;
  value_ = context->Allocate(wanted);
  gradient_ = context->Allocate(wanted);
  pull_ = MakeReorder(context, activation->value(), value_);
  push_ = MakeReorder(context, gradient_, activation->gradient());
}

ParameterPort::ParameterPort(CpuContext* context, const dnnl::memory::dims& dims,
                             const dnnl::memory::desc& wanted)
    : flat_(context->Unbound(PlainLayout(dims))), wanted_(flat_) {
  if (wanted == flat_.get_desc()) return;
  wanted_ = context->Allocate(wanted);
  reorder_ = MakeReorder(context, flat_, wanted_);
}

void ParameterPort::Pull(const float* parameters) {
  // oneDNN has no memory of const values; this one is only read.
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

}  // namespace catchment
