#include "absl/strings/str_join.h"
#include "cli/live/commands.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/program/command_line.h"
#include "common/trace/trace_file.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment trace DIR

Joins the timelines of a job's processes into DIR/trace.json, with all times on the master's clock. DIR is the
directory that was given to `catchment train --trace=DIR`, or to the daemons with their --trace; each process
writes a file there when it ends. Files of earlier runs are left out, and named. Open trace.json at
https://ui.perfetto.dev, which keeps it in the browser, or at chrome://tracing.

Examples:
  catchment train examples/mnist_mlp.textproto --workers=2 --trace=trace --out=out
  catchment trace trace
)";

}  // namespace

int RunTrace(const std::vector<std::string>& args, const Streams& streams) {
  std::string directory;
  CommandLine line{.name = "catchment trace", .usage = kUsage};
  line.argument = {"DIR", "trace", &directory};
  return RunCommandLine(&line, args, streams.out, streams.err, [&]() -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const JoinedFiles files, JoinTraceDirectory(directory));
    *streams.out << directory << "/" << kJoinedTrace << " has " << Plural(files.joined.size(), "timeline")
                 << "; open it at https://ui.perfetto.dev\n";
    if (!files.left_out.empty()) {
      *streams.out << "left out, because they are not of the newest run: "
                   << absl::StrJoin(files.left_out, ", ") << '\n';
    }
    return 0;
  });
}

}  // namespace catchment
