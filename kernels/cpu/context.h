// oneDNN's engine and stream, and the scratch memory that all primitives of a backend share (they run one
// after another). Operation is a primitive with its arguments, ready to run again and again.
//
// Scratch memory is ours, not the library's: the library's belongs to the thread that creates a primitive,
// and a network may be made by one thread and run by another.
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

  // Attributes of every primitive: scratch memory comes from us.
  dnnl::primitive_attr Attributes() const;
  dnnl::memory Allocate(const dnnl::memory::desc& layout) const { return {layout, engine_}; }
  // Without values yet; set_data_handle comes later.
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

// A reorder of values from one layout to another.
Operation MakeReorder(CpuContext* context, const dnnl::memory& from, const dnnl::memory& to);

// f()'s result, or nothing where oneDNN cannot do it. Its C++ interface says so by throwing; that memory is
// short goes on to the caller.
template <typename F>
auto TryMake(F f) -> std::optional<decltype(f())> {
  try {
    return f();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) throw;
    return std::nullopt;
  }
}

// The same values, which lie in plain order, as an array of other dimensions.
dnnl::memory Reshaped(CpuContext* context, const dnnl::memory& plain, const dnnl::memory::dims& dims);

dnnl::memory::desc PlainLayout(const dnnl::memory::dims& dims);
// A layout of the primitive's choice.
dnnl::memory::desc AnyLayout(const dnnl::memory::dims& dims);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CONTEXT_H_
