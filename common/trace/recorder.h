// Records spans of time into a ring of fixed size, for a timeline (docs/watching.md).
//
// A process that was started with --trace has one recorder, and others have none. Code that measures a phase
// anyway passes its begin and end to RecordSpan; other code declares a TraceScope. Without a recorder both
// are a branch on an atomic, and read no clock.
//
// A span belongs to the thread that records it, on which spans nest, or to a lane, such as "network to server
// 1", on which they may overlap.
//
// Units: seconds of the clock (common/base/clock.h). Threads: safe. Errors: none; when the ring is full, the
// oldest span is dropped.
#ifndef CATCHMENT_COMMON_TRACE_RECORDER_H_
#define CATCHMENT_COMMON_TRACE_RECORDER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/trace/clock_offset.h"

namespace catchment {

// The block of a push that a span belongs to.
struct TraceBlock {
  uint32_t worker = 0;
  uint32_t block = 0;
  uint64_t push = 0;  // its sequence number; 0: a pull
};

// The spans that a recorder has recorded.
struct RecordedTrace {
  struct Span {
    std::string name;
    std::string lane;     // empty: the span is of a thread
    uint32_t thread = 0;  // the kernel's number of the thread
    double begin = 0;
    double end = 0;
    std::optional<TraceBlock> block;
  };

  std::string process;                          // "worker 3"
  std::set<uint64_t> runs;                      // in which it has taken part (Run in proto/wire.proto)
  std::map<uint32_t, std::string> threads;      // those that have a name
  std::vector<Span> spans;                      // by the time at which they ended
  uint64_t dropped = 0;                         // older spans
  std::optional<ClockOffset::Estimate> offset;  // absent: the master has not answered
};

class TraceRecorder {
 public:
  // With this number of spans the file of a process has at most 3 MB.
  static constexpr size_t kUsualCapacity = 20'000;

  // `clock` outlives the recorder.
  TraceRecorder(const Clock* clock, size_t capacity = kUsualCapacity);

  double Now() const { return clock_.Now(); }

  void SetProcess(absl::string_view name);
  void AddRun(uint64_t run_id);
  // Names the calling thread.
  void NameThread(absl::string_view name);
  // Adds a reading of the master's clock (ClockOffset::Add).
  void AddReading(double sent, double master, double received);

  // Records a span of the calling thread.
  void Record(absl::string_view name, double begin, double end, std::optional<TraceBlock> block = {});
  // Records a span of another thread, of this or another process.
  void RecordOf(uint32_t thread, absl::string_view name, double begin, double end);
  // Records a span on a lane.
  void RecordOn(absl::string_view lane, absl::string_view name, double begin, double end,
                std::optional<TraceBlock> block = {});

  RecordedTrace recorded() const;

 private:
  struct Span {
    uint32_t name = 0;
    uint32_t lane = 0;
    uint32_t thread = 0;
    double begin = 0;
    double end = 0;
    std::optional<TraceBlock> block;
  };

  void Add(absl::string_view name, absl::string_view lane, uint32_t thread, double begin, double end,
           std::optional<TraceBlock> block);
  uint32_t IndexOf(absl::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock& clock_;
  const size_t capacity_;

  mutable Mutex mu_;
  std::string process_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> runs_ ABSL_GUARDED_BY(mu_);
  std::map<uint32_t, std::string> threads_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, uint32_t, std::less<>> index_ ABSL_GUARDED_BY(mu_);  // of texts_
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mu_);
  std::vector<Span> ring_ ABSL_GUARDED_BY(mu_);
  uint64_t count_ ABSL_GUARDED_BY(mu_) = 0;  // of all spans
  ClockOffset offset_ ABSL_GUARDED_BY(mu_);
};

namespace trace_internal {
inline std::atomic<TraceRecorder*> recorder{nullptr};
}  // namespace trace_internal

// Returns the recorder of this process; null: it has none.
inline TraceRecorder* Trace() { return trace_internal::recorder.load(std::memory_order_relaxed); }
// Sets the recorder, before the threads that record are started. It lives until they have ended.
inline void SetTrace(TraceRecorder* recorder) { trace_internal::recorder = recorder; }

// Records a span of the calling thread that was measured anyway.
inline void RecordSpan(absl::string_view name, double begin, double end) {
  if (TraceRecorder* const trace = Trace()) trace->Record(name, begin, end);
}

// Name the process, a run in which it takes part, and the calling thread in its trace.
inline void NameTracedProcess(absl::string_view name) {
  if (TraceRecorder* const trace = Trace()) trace->SetProcess(name);
}
inline void NameTracedRun(uint64_t run_id) {
  if (TraceRecorder* const trace = Trace()) trace->AddRun(run_id);
}
inline void NameTracedThread(absl::string_view name) {
  if (TraceRecorder* const trace = Trace()) trace->NameThread(name);
}

// Adds a reading of the master's clock: `master` is the time in an answer (0: it has none), `sent` when the
// call was made.
inline void RecordMasterTime(double sent, double master) {
  TraceRecorder* const trace = Trace();
  if (trace != nullptr && master != 0) trace->AddReading(sent, master, trace->Now());
}

// Records a span from its construction to its destruction.
class TraceScope {
 public:
  // `name` outlives the scope.
  explicit TraceScope(absl::string_view name, std::optional<TraceBlock> block = {}) : trace_(Trace()) {
    if (trace_ == nullptr) return;
    name_ = name;
    block_ = block;
    begin_ = trace_->Now();
  }
  ~TraceScope() {
    if (trace_ != nullptr) trace_->Record(name_, begin_, trace_->Now(), block_);
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceRecorder* const trace_;
  absl::string_view name_;
  std::optional<TraceBlock> block_;
  double begin_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_TRACE_RECORDER_H_
