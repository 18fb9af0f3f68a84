#include "common/trace/trace_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/atomic_file.h"
#include "common/base/file_access.h"
#include "common/base/machine.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPrefix[] = "spans-";
// The kernel's numbers of threads are smaller.
constexpr int64_t kFirstLane = 1 << 23;

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string NameEvent(absl::string_view what, int pid, int64_t tid, const std::string& name) {
  return absl::StrFormat(R"({"ph":"M","pid":%d,"tid":%d,"name":"%s","args":{"name":%s}})", pid, tid, what,
                         Quoted(name));
}

// Viewers show spans of a thread that overlap without nesting wrongly: a lane is shown as several threads, in
// each of which no spans overlap.
class Lanes {
 public:
  // Returns the thread for a span on `lane`. Call it in the order of the begins.
  int64_t ThreadOf(const RecordedTrace::Span& span) {
    std::vector<Thread>& threads = lanes_[span.lane];
    for (Thread& thread : threads) {
      if (thread.free_at > span.begin) continue;
      thread.free_at = span.end;
      return thread.number;
    }
    threads.push_back({next_++, span.end});
    return threads.back().number;
  }

  template <typename F>
  void ForEach(F f) const {
    for (const auto& [lane, threads] : lanes_) {
      for (const Thread& thread : threads) f(thread.number, lane);
    }
  }

 private:
  struct Thread {
    int64_t number;
    double free_at;
  };

  std::map<std::string, std::vector<Thread>> lanes_;
  int64_t next_ = kFirstLane;
};

std::string SpanEvent(const RecordedTrace::Span& span, int pid, int64_t tid, double offset) {
  std::string event =
      absl::StrFormat(R"({"ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"name":%s)", pid, tid,
                      1e6 * (span.begin + offset), 1e6 * (span.end - span.begin), Quoted(span.name));
  if (span.block) {
    absl::StrAppendFormat(&event, R"(,"args":{"worker":%d,"block":%d,"push":%d})", span.block->worker,
                          span.block->block, span.block->push);
  }
  return event + "}";
}

Json Facts(const TracedProcess& process, const RecordedTrace& trace) {
  Json facts;
  facts["process"] = trace.process.empty() ? process.program : trace.process;
  facts["host"] = process.host;
  facts["pid"] = process.pid;
  facts["runs"] = Json::array();
  for (const uint64_t run : trace.runs) facts["runs"].push_back(FormatId(run));
  facts["clock_offset_seconds"] = trace.offset ? Json(trace.offset->seconds) : Json();
  facts["clock_error_seconds"] = trace.offset ? Json(trace.offset->error) : Json();
  facts["spans"] = trace.spans.size();
  facts["dropped_spans"] = trace.dropped;
  return facts;
}

// Returns what viewers show beside the name of the process.
std::string Label(const RecordedTrace& trace) {
  std::string label = trace.offset ? absl::StrFormat("clock within %.3f ms", 1e3 * trace.offset->error)
                                   : "clock not compared with the master's";
  if (trace.dropped > 0) absl::StrAppend(&label, ", ", trace.dropped, " older spans dropped");
  return label;
}

constexpr char kFileBegin[] = "{\"displayTimeUnit\":\"ms\",\"otherData\":";

std::string FileText(const std::vector<std::string>& events, const Json& facts) {
  return absl::StrCat(kFileBegin, facts.dump(), ",\n\"traceEvents\":[\n", absl::StrJoin(events, ",\n"),
                      "\n]}\n");
}

}  // namespace

std::string TraceJson(const TracedProcess& process, const RecordedTrace& trace) {
  const Json facts = Facts(process, trace);
  const int pid = process.pid;
  std::vector<std::string> events = {
      NameEvent("process_name", pid, 0,
                absl::StrCat(facts["process"].get<std::string>(), " (", process.host, ")")),
      absl::StrFormat(R"({"ph":"M","pid":%d,"tid":0,"name":"process_labels","args":{"labels":%s}})", pid,
                      Quoted(Label(trace)))};
  for (const auto& [thread, name] : trace.threads)
    events.push_back(NameEvent("thread_name", pid, thread, name));
  std::vector<RecordedTrace::Span> spans = trace.spans;
  // A span goes before those that begin with it and are in it.
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  Lanes lanes;
  const double offset = trace.offset ? trace.offset->seconds : 0;
  for (const RecordedTrace::Span& span : spans) {
    const int64_t tid = span.lane.empty() ? span.thread : lanes.ThreadOf(span);
    events.push_back(SpanEvent(span, pid, tid, offset));
  }
  lanes.ForEach([&](int64_t thread, const std::string& lane) {
    events.push_back(NameEvent("thread_name", pid, thread, lane));
  });
  return FileText(events, facts);
}

absl::StatusOr<std::string> JoinTraces(const std::vector<std::string>& files) {
  Json processes = Json::array();
  std::vector<std::string> events;
  for (size_t i = 0; i < files.size(); ++i) {
    Json file = Json::parse(files[i], nullptr, /*allow_exceptions=*/false);
    const bool is_trace = file.is_object() && file.contains("otherData") && file.contains("traceEvents") &&
                          file["traceEvents"].is_array();
    if (!is_trace) return absl::InvalidArgumentError("is not a trace of Catchment");
    processes.push_back(file["otherData"]);
    for (Json& event : file["traceEvents"]) {
      event["pid"] = i + 1;
      events.push_back(event.dump());
    }
  }
  return FileText(events, Json{{"processes", processes}});
}

absl::Status PrepareTraceDirectory(const std::string& directory) {
  RETURN_IF_ERROR(CreateDirectories(directory));
  if (access(directory.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write to ", directory));
}

absl::StatusOr<std::string> WriteTrace(const std::string& directory, const std::string& program,
                                       const RecordedTrace& trace) {
  const TracedProcess process = {program, HostName(), getpid()};
  std::string path = absl::StrCat(directory, "/", kPrefix, process.host, "-", process.pid, ".json");
  RETURN_IF_ERROR(WriteAtomically(path, TraceJson(process, trace)));
  return path;
}

namespace {

// A file of spans in a directory.
struct SpanFile {
  std::string name;
  std::string text;
  std::filesystem::file_time_type written;
  std::set<std::string> runs;
};

absl::StatusOr<SpanFile> ReadSpanFile(const std::filesystem::path& path) {
  SpanFile file{.name = path.filename()};
  std::error_code error;
  file.written = std::filesystem::last_write_time(path, error);
  ASSIGN_OR_RETURN(file.text, ReadFile(path));
  if (const auto one = JoinTraces({file.text}); !one.ok())
    return absl::InvalidArgumentError(absl::StrCat(path.string(), " ", one.status().message()));
  const Json facts = Json::parse(file.text)["otherData"];
  if (!facts.is_object() || !facts.contains("runs") || !facts["runs"].is_array()) return file;
  for (const Json& run : facts["runs"]) {
    if (run.is_string()) file.runs.insert(run.get<std::string>());
  }
  return file;
}

// Returns the files of the directory, by name.
absl::StatusOr<std::vector<SpanFile>> ReadSpanFiles(const std::string& directory) {
  std::vector<SpanFile> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (!absl::StartsWith(name, kPrefix) || !absl::EndsWith(name, ".json")) continue;
    ASSIGN_OR_RETURN(SpanFile file, ReadSpanFile(entry.path()));
    files.push_back(std::move(file));
  }
  if (error) return absl::NotFoundError(absl::StrCat("cannot read ", directory, ": ", error.message()));
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

// Returns the newest run, and those that share a process with it, directly or through others. Empty if no
// file names its run, as those of earlier versions.
std::set<std::string> NewestRuns(const std::vector<SpanFile>& files) {
  const SpanFile* newest = nullptr;
  for (const SpanFile& file : files) {
    if (!file.runs.empty() && (newest == nullptr || file.written > newest->written)) newest = &file;
  }
  if (newest == nullptr) return {};
  std::set<std::string> runs = newest->runs;
  for (size_t before = 0; before < runs.size();) {
    before = runs.size();
    for (const SpanFile& file : files) {
      const bool shares = std::any_of(file.runs.begin(), file.runs.end(),
                                      [&runs](const std::string& run) { return runs.count(run) > 0; });
      if (shares) runs.insert(file.runs.begin(), file.runs.end());
    }
  }
  return runs;
}

// Returns an error if a file of the user, such as the trace of another program, would be replaced.
absl::Status CheckMayReplace(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (text.ok() && absl::StartsWith(*text, absl::StrCat(kFileBegin, "{\"processes\":")))
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " was not written by Catchment: move it, and repeat the command"));
}

}  // namespace

absl::StatusOr<JoinedFiles> JoinTraceDirectory(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<SpanFile> files, ReadSpanFiles(directory));
  if (files.empty()) {
    return absl::NotFoundError(absl::StrCat("there are no files of spans in ", directory,
                                            ", which daemons with --trace=DIR write when they end"));
  }
  const std::set<std::string> newest = NewestRuns(files);
  JoinedFiles result;
  std::vector<std::string> texts;
  for (const SpanFile& file : files) {
    const bool is_newest = newest.empty() || (!file.runs.empty() && newest.count(*file.runs.begin()) > 0);
    (is_newest ? result.joined : result.left_out).push_back(file.name);
    if (is_newest) texts.push_back(file.text);
  }
  ASSIGN_OR_RETURN(const std::string joined, JoinTraces(texts));
  const std::string path = absl::StrCat(directory, "/", kJoinedTrace);
  RETURN_IF_ERROR(CheckMayReplace(path));
  RETURN_IF_ERROR(WriteAtomically(path, joined));
  return result;
}

}  // namespace catchment
