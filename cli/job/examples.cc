#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/base/run_directory.h"
#include "cli/job/commands.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/text_format.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment examples DIR

Writes job files to run or to start from, and programs in Python that train their own models, to DIR. If a
file exists with different content, nothing is written.

Example:
  catchment examples examples && catchment train examples/drawn_digits.textproto --workers=2
)";

constexpr char kNotes[] = R"(
DIR/fetch_mnist.sh fetches the data of the examples for MNIST.
)";

// Returns an error if a file of DIR is not the example of its name.
absl::Status CheckNothingDiffers(const std::string& directory) {
  for (const ExampleFile& file : ExampleFiles()) {
    const std::string path = absl::StrCat(directory, "/", file.path);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    // g++ 12 takes the size of a string that is moved out of here for the largest one.
    const absl::StatusOr<std::string> present = ReadTextFile(path);
    RETURN_IF_ERROR(present.status());
    if (*present == file.content) continue;
    return absl::AlreadyExistsError(
        absl::StrCat(path, " exists with different content than the example; choose another directory"));
  }
  return absl::OkStatus();
}

absl::Status Write(const std::string& directory, const ExampleFile& file) {
  namespace fs = std::filesystem;
  const std::string path = absl::StrCat(directory, "/", file.path);
  RETURN_IF_ERROR(CreateDirectories(fs::path(path).parent_path()));
  RETURN_IF_ERROR(WriteFile(path, std::string(file.content)));
  if (!absl::EndsWith(path, ".sh")) return absl::OkStatus();
  std::error_code error;
  fs::permissions(path, fs::perms::owner_exec, fs::perm_options::add, error);
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  return absl::OkStatus();
}

absl::StatusOr<int> WriteExamples(const std::string& directory, std::ostream* out) {
  RETURN_IF_ERROR(CheckNothingDiffers(directory));
  for (const ExampleFile& file : ExampleFiles()) {
    RETURN_IF_ERROR(Write(directory, file));
  }
  *out << Plural(ExampleFiles().size(), "file") << " in " << directory << "; to begin: catchment train "
       << directory << "/drawn_digits.textproto --workers=2\n";
  return 0;
}

}  // namespace

int RunExamples(const std::vector<std::string>& args, const Streams& streams) {
  std::string directory;
  CommandLine line{.name = "catchment examples", .usage = kUsage, .notes = kNotes};
  line.argument = {"DIR", "examples", &directory};
  return RunCommandLine(&line, args, streams.out, streams.err,
                        [&] { return WriteExamples(directory, streams.out); });
}

}  // namespace catchment
