#include "common/trace/recorder.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace catchment {
namespace {

// Names of layers, and of spans in programs, which could have any number of them.
constexpr size_t kMaxTexts = 4096;

uint32_t ThisThread() {
  static thread_local const auto thread = static_cast<uint32_t>(syscall(SYS_gettid));
  return thread;
}

}  // namespace

TraceRecorder::TraceRecorder(const Clock* clock, size_t capacity)
    : clock_(*clock), capacity_(capacity), texts_({""}) {
  ring_.reserve(capacity);
}

void TraceRecorder::SetProcess(absl::string_view name) {
  MutexLock lock(&mu_);
  process_ = std::string(name);
}

void TraceRecorder::AddRun(uint64_t run_id) {
  MutexLock lock(&mu_);
  runs_.insert(run_id);
}

void TraceRecorder::NameThread(absl::string_view name) {
  MutexLock lock(&mu_);
  threads_[ThisThread()] = std::string(name);
}

void TraceRecorder::AddReading(double sent, double master, double received) {
  MutexLock lock(&mu_);
  offset_.Add(sent, master, received);
}

void TraceRecorder::Record(absl::string_view name, double begin, double end,
                           std::optional<TraceBlock> block) {
  Add(name, "", ThisThread(), begin, end, block);
}

void TraceRecorder::RecordOf(uint32_t thread, absl::string_view name, double begin, double end) {
  Add(name, "", thread, begin, end, std::nullopt);
}

void TraceRecorder::RecordOn(absl::string_view lane, absl::string_view name, double begin, double end,
                             std::optional<TraceBlock> block) {
  Add(name, lane, 0, begin, end, block);
}

void TraceRecorder::Add(absl::string_view name, absl::string_view lane, uint32_t thread, double begin,
                        double end, std::optional<TraceBlock> block) {
  MutexLock lock(&mu_);
  const Span span = {IndexOf(name), IndexOf(lane), thread, begin, std::max(begin, end), block};
  if (ring_.size() < capacity_) {
    ring_.push_back(span);
  } else {
    ring_[count_ % capacity_] = span;
  }
  ++count_;
}

uint32_t TraceRecorder::IndexOf(absl::string_view text) {
  if (text.empty()) return 0;
  const auto found = index_.find(text);
  if (found != index_.end()) return found->second;
  if (texts_.size() >= kMaxTexts) return IndexOf(texts_.back());
  const auto index = static_cast<uint32_t>(texts_.size());
  texts_.push_back(texts_.size() + 1 < kMaxTexts ? std::string(text) : "(other)");
  index_[texts_.back()] = index;
  return index;
}

RecordedTrace TraceRecorder::recorded() const {
  MutexLock lock(&mu_);
  RecordedTrace trace{.process = process_,
                      .runs = runs_,
                      .threads = threads_,
                      .spans = {},
                      .dropped = count_ - ring_.size(),
                      .offset = offset_.estimate()};
  for (size_t i = 0; i < ring_.size(); ++i) {
    const Span& span = ring_[(trace.dropped + i) % ring_.size()];
    trace.spans.push_back(
        {texts_[span.name], texts_[span.lane], span.thread, span.begin, span.end, span.block});
  }
  return trace;
}

}  // namespace catchment
