// An activation in oneDNN's memory, and how kernels of other layouts get at it.
#ifndef CATCHMENT_KERNELS_CPU_ACTIVATION_H_
#define CATCHMENT_KERNELS_CPU_ACTIVATION_H_

#include <optional>

#include "dnnl.hpp"
#include "kernels/backend.h"
#include "kernels/cpu/context.h"

namespace catchment {

// N x C x H x W, N x C, or of sequences N x steps x values.
dnnl::memory::dims DimsOf(const SampleShape& shape, int64_t batch_size);

class CpuActivation final : public Activation {
 public:
  CpuActivation(CpuContext* context, const dnnl::memory::desc& layout)
      : value_(context->Allocate(layout)), gradient_(context->Allocate(layout)) {}
  // Another look at the same values, with a gradient of its own.
  CpuActivation(CpuContext* context, const dnnl::memory& value)
      : value_(value), gradient_(context->Allocate(value.get_desc())) {}

  // Another look at both.
  CpuActivation(const dnnl::memory& value, const dnnl::memory& gradient)
      : value_(value), gradient_(gradient) {}

  // As DimsOf says; values and gradient have the same layout.
  dnnl::memory::desc layout() const { return value_.get_desc(); }
  const dnnl::memory& value() const { return value_; }
  const dnnl::memory& gradient() const { return gradient_; }

  // All of the memory, padding included.
  int64_t stored_values() const { return static_cast<int64_t>(layout().get_size() / sizeof(float)); }
  float* value_data() const { return static_cast<float*>(value_.get_data_handle()); }
  float* gradient_data() const { return static_cast<float*>(gradient_.get_data_handle()); }

 private:
  dnnl::memory value_;
  dnnl::memory gradient_;
};

// Memory in the layout that a reader wants: `from` itself where it has that layout, otherwise a copy.
class ReadPort {
 public:
  ReadPort(CpuContext* context, const dnnl::memory& from, const dnnl::memory::desc& wanted);

  const dnnl::memory& memory() const { return memory_; }
  bool is_direct() const { return !copy_.has_value(); }
  // Brings the copy up to date, before it is read.
  void Pull() {
    if (copy_) copy_->Run();
  }

 private:
  dnnl::memory memory_;
  std::optional<Operation> copy_;
};

// Memory in the layout in which a writer leaves its results: `to` itself where it has that layout, otherwise
// a buffer.
class WritePort {
 public:
  WritePort(CpuContext* context, const dnnl::memory& to, const dnnl::memory::desc& wanted);

  const dnnl::memory& memory() const { return memory_; }
  // Copies the buffer to where its values belong, after it was written.
  void Push() {
    if (copy_) copy_->Run();
  }

 private:
  dnnl::memory memory_;
  std::optional<Operation> copy_;
};

// An activation in the layout that its reader wants: itself where it has that layout, otherwise a copy.
class InputPort {
 public:
  InputPort(CpuContext* context, const CpuActivation* activation, const dnnl::memory::desc& wanted)
      : value_(context, activation->value(), wanted), gradient_(context, activation->gradient(), wanted) {}

  const dnnl::memory& value() const { return value_.memory(); }
  const dnnl::memory& gradient() const { return gradient_.memory(); }
  float* value_data() const { return static_cast<float*>(value().get_data_handle()); }
  float* gradient_data() const { return static_cast<float*>(gradient().get_data_handle()); }
  // Whether it is the activation itself.
  bool is_direct() const { return value_.is_direct(); }

  // Brings the values, before they are read.
  void Pull() { value_.Pull(); }
  // Takes the gradient back, after it was written.
  void Push() { gradient_.Push(); }

 private:
  ReadPort value_;
  WritePort gradient_;
};

// Parameters, from PyTorch's layout in the flat vector to the layout that a primitive wants.
class ParameterPort {
 public:
  ParameterPort(CpuContext* context, const dnnl::memory::dims& dims, const dnnl::memory::desc& wanted);

  // What the primitive reads.
  const dnnl::memory& memory() const { return wanted_; }
  void Pull(const float* parameters);

 private:
  dnnl::memory flat_;
  dnnl::memory wanted_;
  std::optional<Operation> reorder_;
};

// The other way: gradients from a primitive's layout to the flat vector.
class GradientPort {
 public:
  GradientPort(CpuContext* context, const dnnl::memory::dims& dims, const dnnl::memory::desc& wanted);

  // What the primitive writes.
  const dnnl::memory& memory() const { return wanted_; }
  // Before the primitive runs.
  void Bind(float* gradient) { flat_.set_data_handle(gradient); }
  // After it ran.
  void Push() {
    if (reorder_) reorder_->Run();
  }

 private:
  dnnl::memory flat_;
  dnnl::memory wanted_;
  std::optional<Operation> reorder_;
};

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_ACTIVATION_H_
