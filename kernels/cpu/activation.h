// An activation in oneDNN's memory, and how kernels access it that need another layout.
#ifndef CATCHMENT_KERNELS_CPU_ACTIVATION_H_
#define CATCHMENT_KERNELS_CPU_ACTIVATION_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "dnnl.hpp"
#include "kernels/backend.h"
#include "kernels/cpu/context.h"

namespace catchment {

// Returns N x C x H x W, N x C, or for sequences N x steps x values.
dnnl::memory::dims DimsOf(const SampleShape& shape, int64_t batch_size);

// The layout of one sample in an activation's memory, for loops of our own: `blocks` of channels, one after
// another; in each, for every position (height and width), `block` channels side by side. C x H x W has C
// blocks of one channel, and a vector is one block at one position. The last block may be wider than the
// remaining channels; the rest of it is 0.
struct SampleLayout {
  int64_t blocks;
  int64_t positions;
  int64_t block;

  int64_t stored() const { return blocks * positions * block; }
  // Returns the layout for loops that need no channels: C x H x W becomes one position with C*H*W channels.
  SampleLayout ByElement() const { return block == 1 ? SampleLayout{1, 1, stored()} : *this; }
};

// Returns the layout of a sample. Errors: Unimplemented for a layout that is neither plain, nor channels
// last, nor blocked by channels.
absl::StatusOr<SampleLayout> LayoutOfSample(const dnnl::memory::desc& layout);

class CpuActivation final : public Activation {
 public:
  CpuActivation(CpuContext* context, const dnnl::memory::desc& layout)
      : value_(context->Allocate(layout)), gradient_(context->Allocate(layout)) {}
  // Makes a view of the same values with a separate gradient.
  CpuActivation(CpuContext* context, const dnnl::memory& value)
      : value_(value), gradient_(context->Allocate(value.get_desc())) {}

  // Makes a view of both.
  CpuActivation(const dnnl::memory& value, const dnnl::memory& gradient)
      : value_(value), gradient_(gradient) {}

  // Returns the layout of values and gradient, with the dimensions of DimsOf.
  dnnl::memory::desc layout() const { return value_.get_desc(); }
  const dnnl::memory& value() const { return value_; }
  const dnnl::memory& gradient() const { return gradient_; }

  // Returns the number of values in memory, including padding.
  int64_t stored_values() const { return static_cast<int64_t>(layout().get_size() / sizeof(float)); }
  float* value_data() const { return static_cast<float*>(value_.get_data_handle()); }
  float* gradient_data() const { return static_cast<float*>(gradient_.get_data_handle()); }

 private:
  dnnl::memory value_;
  dnnl::memory gradient_;
};

// Memory in the layout that a reader needs: `from` itself if it has that layout, otherwise a copy.
class ReadPort {
 public:
  ReadPort(CpuContext* context, const dnnl::memory& from, const dnnl::memory::desc& wanted);

  const dnnl::memory& memory() const { return memory_; }
  bool is_direct() const { return !copy_.has_value(); }
  // Updates the copy; to be called before it is read.
  void Pull() {
    if (copy_) copy_->Run();
  }

 private:
  dnnl::memory memory_;
  std::optional<Operation> copy_;
};

// Memory in the layout in which a writer writes its results: `to` itself if it has that layout, otherwise a
// buffer.
class WritePort {
 public:
  WritePort(CpuContext* context, const dnnl::memory& to, const dnnl::memory::desc& wanted);

  const dnnl::memory& memory() const { return memory_; }
  // Copies the buffer to its destination; to be called after it was written.
  void Push() {
    if (copy_) copy_->Run();
  }

 private:
  dnnl::memory memory_;
  std::optional<Operation> copy_;
};

// An activation in the layout that its reader needs: itself if it has that layout, otherwise a copy.
class InputPort {
 public:
  InputPort(CpuContext* context, const CpuActivation* activation, const dnnl::memory::desc& wanted)
      : value_(context, activation->value(), wanted), gradient_(context, activation->gradient(), wanted) {}

  const dnnl::memory& value() const { return value_.memory(); }
  const dnnl::memory& gradient() const { return gradient_.memory(); }
  float* value_data() const { return static_cast<float*>(value().get_data_handle()); }
  float* gradient_data() const { return static_cast<float*>(gradient().get_data_handle()); }
  // Returns true if it is the activation itself.
  bool is_direct() const { return value_.is_direct(); }

  // Copies the values; to be called before they are read.
  void Pull() { value_.Pull(); }
  // Copies the gradient back; to be called after it was written.
  void Push() { gradient_.Push(); }

 private:
  ReadPort value_;
  WritePort gradient_;
};

// Converts parameters from PyTorch's layout in the flat vector to the layout of a primitive.
class ParameterPort {
 public:
  ParameterPort(CpuContext* context, const dnnl::memory::dims& dims, const dnnl::memory::desc& wanted);

  // Returns the memory that the primitive reads.
  const dnnl::memory& memory() const { return wanted_; }
  void Pull(const float* parameters);

 private:
  dnnl::memory flat_;
  dnnl::memory wanted_;
  std::optional<Operation> reorder_;
};

// Converts gradients from a primitive's layout to the flat vector.
class GradientPort {
 public:
  GradientPort(CpuContext* context, const dnnl::memory::dims& dims, const dnnl::memory::desc& wanted);

  // Returns the memory that the primitive writes.
  const dnnl::memory& memory() const { return wanted_; }
  // To be called before the primitive runs.
  void Bind(float* gradient) { flat_.set_data_handle(gradient); }
  // To be called after the primitive ran.
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
