#include "kernels/cpu/context.h"

#include "absl/strings/match.h"
#include "glog/logging.h"
#include "kernels/cpu/parallel.h"

namespace catchment {

using dnnl::memory;

CpuContext::CpuContext(int threads, bool deterministic)
    : threads_(threads),
      deterministic_(deterministic),
      engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_) {
  SetThreads(threads_);
}

dnnl::primitive_attr CpuContext::Attributes() const {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

void CpuContext::ReserveScratch(const memory::desc& layout) {
  const size_t have = scratch_ ? scratch_.get_desc().get_size() : 0;
  if (layout.get_size() <= have) return;
  const auto bytes = static_cast<memory::dim>(layout.get_size());
  scratch_ = Allocate(memory::desc({bytes}, memory::data_type::u8, memory::format_tag::a));
}

Operation::Operation(CpuContext* context, const dnnl::primitive& primitive, const memory::desc& scratch,
                     std::vector<std::pair<int, memory>> arguments)
    : context_(context), primitive_(primitive), memories_(std::move(arguments)) {
  if (scratch.get_size() > 0) {
    context_->ReserveScratch(scratch);
    scratch_ = context_->Unbound(scratch);
    memories_.emplace_back(DNNL_ARG_SCRATCHPAD, scratch_);
  }
  for (const auto& [index, memory] : memories_) arguments_.push_back({index, memory.get()});
}

void Operation::Run() {
  if (scratch_) scratch_.set_data_handle(context_->scratch());
  const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), context_->stream().get(),
                                                      static_cast<int>(arguments_.size()), arguments_.data());
  CHECK_EQ(status, dnnl_success) << "oneDNN could not run a primitive";
}

bool IsReferenceLoop(absl::string_view implementation) {
  return absl::StartsWith(implementation, "ref") || absl::StartsWith(implementation, "simple");
}

Operation MakeReorder(CpuContext* context, const memory& from, const memory& to) {
  const dnnl::reorder::primitive_desc description(from, to, context->Attributes());
  return {context,
          dnnl::reorder(description),
          description.scratchpad_desc(),
          {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

memory Reshaped(CpuContext* context, const memory& plain, const memory::dims& dims) {
  memory reshaped = context->Unbound(PlainLayout(dims));
  reshaped.set_data_handle(plain.get_data_handle());
  return reshaped;
}

memory::desc PlainLayout(const memory::dims& dims) {
  constexpr memory::format_tag kPlain[] = {memory::format_tag::a, memory::format_tag::ab,
                                           memory::format_tag::abc, memory::format_tag::abcd,
                                           memory::format_tag::abcde};
  return {dims, memory::data_type::f32, kPlain[dims.size() - 1]};
}

memory::desc AnyLayout(const memory::dims& dims) {
  return {dims, memory::data_type::f32, memory::format_tag::any};
}

}  // namespace catchment
