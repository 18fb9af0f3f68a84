#include "cli/compare/cluster_command.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/run_directory.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace catchment {

namespace fs = std::filesystem;

std::string FindInPath(const std::string& program) {
  const char* const path = std::getenv("PATH");
  for (const std::string& directory :
       std::vector<std::string>(absl::StrSplit(path == nullptr ? "" : path, ':'))) {
    const std::string file = absl::StrCat(directory.empty() ? "." : directory, "/", program);
    if (access(file.c_str(), X_OK) == 0 && fs::is_regular_file(file)) return file;
  }
  return "";
}

absl::StatusOr<std::string> Execute(const std::vector<std::string>& argv, const std::string& log,
                                    double seconds) {
  RETURN_IF_ERROR(Delete(log));
  const std::string name = fs::path(argv.front()).filename().string();
  ASSIGN_OR_RETURN(Process process, Process::Start({name, argv, log}));
  const std::optional<ProcessEnd> end = process.WaitFor(seconds);
  if (end.has_value() && end->in_order()) return process.Output();
  const std::string how = end.has_value() ? ToString(*end) : absl::StrCat("no answer within ", seconds, " s");
  return absl::UnavailableError(
      absl::StrCat(name, " failed (", how, "):", Quote(process.LastLines(kQuotedLines))));
}

std::string Quote(const std::vector<std::string>& lines) {
  return absl::StrCat("\n    ", lines.empty() ? "(nothing)" : EscapeControls(absl::StrJoin(lines, "\n    ")));
}

int AwaitRequestToEnd(double seconds, const Clock& clock, SignalWaiter* signals) {
  const double end = clock.Now() + seconds;
  int signal = SIGCHLD;
  while (signal == SIGCHLD) signal = signals->Wait(std::max(0.0, end - clock.Now()));
  return signal;
}

}  // namespace catchment
