// Traces as files in the JSON format of Chrome's trace viewer, which Perfetto (https://ui.perfetto.dev)
// opens, too.
//
// The times of a file are on the master's clock, so that files of several hosts can be joined. `otherData` of
// a file, and `otherData.processes` of a joined one, has of each process:
//   process, host, pid        "worker 3", the host's name, the process id there
//   runs                      the ids of the runs in which it has taken part: more than one after a recovery
//   clock_offset_seconds      that was added to the times of the process; null: the master never answered:
//                             the times are those of the host
//   clock_error_seconds       the most by which the offset may be wrong
//   spans, dropped_spans      in the file, and older ones for which the ring had no room
//
// Threads: pure functions but for the file system. Errors: name the file or the directory.
#ifndef CATCHMENT_COMMON_TRACE_TRACE_FILE_H_
#define CATCHMENT_COMMON_TRACE_TRACE_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/trace/recorder.h"

namespace catchment {

struct TracedProcess {
  std::string program;  // "catchment_worker", if the process has no name
  std::string host;
  int pid = 0;
};

// The name of the joined file in the directory.
inline constexpr char kJoinedTrace[] = "trace.json";

// Returns the text of a process's file.
std::string TraceJson(const TracedProcess& process, const RecordedTrace& trace);

// Returns the text that joins the texts of several files; each process gets another number.
absl::StatusOr<std::string> JoinTraces(const std::vector<std::string>& files);

// Creates the directory, and checks that files can be written there.
absl::Status PrepareTraceDirectory(const std::string& directory);

// Writes the trace of this process to a file of its own in the directory. Returns the path.
absl::StatusOr<std::string> WriteTrace(const std::string& directory, const std::string& program,
                                       const RecordedTrace& trace);

// The files of a directory that were joined, and those of earlier runs, by name.
struct JoinedFiles {
  std::vector<std::string> joined;
  std::vector<std::string> left_out;
};

// Joins the files that WriteTrace wrote to the directory into DIRECTORY/trace.json: those of the processes of
// the newest run, and of the runs that went before it in the same processes. NotFound if there are none;
// FailedPrecondition if trace.json is not Catchment's.
absl::StatusOr<JoinedFiles> JoinTraceDirectory(const std::string& directory);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_TRACE_TRACE_FILE_H_
