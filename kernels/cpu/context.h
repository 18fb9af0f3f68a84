// oneDNN's engine and stream, and the scratch memory that all primitives of a backend share, since they run
// one after another. Operation is a primitive with its arguments.
//
// We allocate the scratch memory: oneDNN's own belongs to the thread that creates a primitive, and a network
// may be created by one thread and run by another.
#ifndef CATCHMENT_KERNELS_CPU_CONTEXT_H_
#define CATCHMENT_KERNELS_CPU_CONTEXT_H_

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "dnnl.hpp"

namespace catchment {

class CpuContext {
 public:
  CpuContext(int threads, bool deterministic);

  int threads() const { return threads_; }
  bool deterministic() const { return deterministic_; }
  const dnnl::engine& engine() const { return engine_; }
  const dnnl::stream& stream() const { return stream_; }

  // Returns the attributes of every primitive: the caller provides the scratch memory.
  dnnl::primitive_attr Attributes() const;
  dnnl::memory Allocate(const dnnl::memory::desc& layout) const { return {layout, engine_}; }
  // Returns memory without values; set_data_handle must be called before it is used.
  dnnl::memory Unbound(const dnnl::memory::desc& layout) const { return {layout, engine_, DNNL_MEMORY_NONE}; }

  void ReserveScratch(const dnnl::memory::desc& layout);
  void* scratch() const { return scratch_ ? scratch_.get_data_handle() : nullptr; }

 private:
  int threads_;
  bool deterministic_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory scratch_;
};

class Operation {
 public:
  Operation(CpuContext* context, const dnnl::primitive& primitive, const dnnl::memory::desc& scratch,
            std::vector<std::pair<int, dnnl::memory>> arguments);

  void Run();

 private:
  CpuContext* context_;
  dnnl::primitive primitive_;
  std::vector<std::pair<int, dnnl::memory>> memories_;  // keeps what arguments_ points to
  std::vector<dnnl_exec_arg_t> arguments_;
  dnnl::memory scratch_;
};

// Returns true for the name of an implementation that is a scalar loop, tens to hundreds of times slower than
// compiled kernels.
bool IsReferenceLoop(absl::string_view implementation);

// Returns an operation that copies values from one layout to another.
Operation MakeReorder(CpuContext* context, const dnnl::memory& from, const dnnl::memory& to);

// Returns the result of f(), or nothing if oneDNN cannot do it, in which case its C++ interface throws.
// Throws if memory is exhausted.
template <typename F>
auto TryMake(F f) -> std::optional<decltype(f())> {
  try {
    return f();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw;
    return std::nullopt;
  }
}

// Returns the same values, which are in plain order, as an array with other dimensions.
dnnl::memory Reshaped(CpuContext* context, const dnnl::memory& plain, const dnnl::memory::dims& dims);

dnnl::memory::desc PlainLayout(const dnnl::memory::dims& dims);
// Returns a layout with which the primitive chooses.
dnnl::memory::desc AnyLayout(const dnnl::memory::dims& dims);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CONTEXT_H_
