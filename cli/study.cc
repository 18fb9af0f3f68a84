#include "cli/study.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/base/process.h"
#include "cli/local/local_cluster.h"
#include "common/base/status_macros.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

// Places of the package beside this program: in a bundle, in a wheel, and in Bazel's output.
constexpr const char* kPlaces[] = {"/../python", "/../../..", "/python"};

// Checks the version before it imports anything. Programs that a command starts see nothing of the package,
// which is not in their environment. argv: the package's folder, the command, its arguments.
constexpr char kProgram[] = R"(import sys
if sys.version_info < (3, 8):
    sys.exit("catchment %s: needs Python 3.8 or newer, and %s is %d.%d: set CATCHMENT_PYTHON to a newer one"
             % ((sys.argv[2], sys.executable) + sys.version_info[:2]))
sys.path[0] = sys.argv.pop(1)
from catchment.study.__main__ import main
sys.exit(main(sys.argv[1:]))
)";

absl::StatusOr<std::string> FindPackage(const std::string& here) {
  for (const char* const place : kPlaces) {
    std::error_code error;
    if (std::filesystem::exists(absl::StrCat(here, place, "/catchment/study/__main__.py"), error))
      return here + place;
  }
  return absl::NotFoundError(absl::StrCat(
      "its Python package, catchment/study, is not beside this program: unpack the whole bundle, with python/, "
      "or install the wheel (looked in ",
      here, kPlaces[0], " and other places)"));
}

// Returns the command line that starts Python with the command and the arguments.
absl::StatusOr<std::vector<std::string>> PythonCommand(const std::string& command,
                                                       const std::vector<std::string>& args) {
  ASSIGN_OR_RETURN(const std::string here, OwnDirectory());
  ASSIGN_OR_RETURN(const std::string package, FindPackage(here));
  setenv("CATCHMENT_BINARY", absl::StrCat(here, "/catchment").c_str(), /*overwrite=*/0);
  const char* const chosen = std::getenv("CATCHMENT_PYTHON");
  std::vector<std::string> argv = {chosen == nullptr ? "python3" : chosen, "-c", kProgram, package, command};
  argv.insert(argv.end(), args.begin(), args.end());
  return argv;
}

absl::Status ExecStudy(const std::string& command, const std::vector<std::string>& args) {
  ASSIGN_OR_RETURN(const std::vector<std::string> words, PythonCommand(command, args));
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  argv.push_back(nullptr);
  execvp(argv[0], const_cast<char**>(argv.data()));
  return absl::NotFoundError(absl::StrCat(
      "cannot start ", words[0],
      ": install Python 3.8 or newer (Debian: apt-get install python3), or set CATCHMENT_PYTHON to its path"));
}

}  // namespace

int RunStudy(const std::string& command, const std::vector<std::string>& args, const Streams& streams) {
  const absl::Status status = ExecStudy(command, args);
  *streams.err << "catchment " << command << ": " << status.message() << '\n';
  return kExitFailed;
}

Commands DescribeStudy() {
  const absl::StatusOr<std::vector<std::string>> argv = PythonCommand("--help=json", {});
  if (!argv.ok()) return {};
  const auto commands = JsonOfProgram(ShellCommand("", *argv));
  return commands.ok() ? commands->get<Commands>() : Commands();
}

}  // namespace catchment
