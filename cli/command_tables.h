// Generates shell completion and the manual page from the flags of all command lines.
//
// A command is an object of CommandLine::ToJson (common/program/command_line.h), such as that of "catchment
// train" or of "catchment_server".
//
// Threads: pure functions, except that JsonOfProgram runs a program.
#ifndef CATCHMENT_CLI_COMMAND_TABLES_H_
#define CATCHMENT_CLI_COMMAND_TABLES_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/base/terminal.h"

namespace catchment {

using Commands = std::vector<nlohmann::ordered_json>;

// The values that a flag or an argument accepts.
struct ValueKind {
  // kList: words with commas between them, the presets. kFields: a field of a job and "=", before a value.
  enum Kind { kSwitch, kAnything, kFile, kDirectory, kWords, kList, kFields } kind = kAnything;
  std::vector<std::string> words;  // of the last three
  bool is_optional = false;        // --name alone is allowed, and a value only as --name=value
};
// Returns the kind of a flag in the object's list.
ValueKind KindOfFlag(const nlohmann::ordered_json& flag);
// Returns the kind of a placeholder, such as "JOB", "HOST:PORT|DIR" or "bash|zsh".
ValueKind KindOfPlaceholder(absl::string_view placeholder);

// Returns the first sentence of the usage, after its first line.
std::string SummaryOf(const nlohmann::ordered_json& command);

// Returns the object or the list that a command for a shell prints. Errors: Unavailable.
absl::StatusOr<nlohmann::ordered_json> JsonOfProgram(const std::string& command);

// Return scripts that complete `catchment SUBCOMMAND` and the other programs, if `commands` has them.
std::string BashCompletion(const Commands& commands);
std::string ZshCompletion(const Commands& commands);

// Returns a manual page (man(7)) with this one-line description and version.
std::string ManPage(const std::string& description, const std::string& version, const Commands& commands);

// `catchment completion bash|zsh` and `catchment man` print these. `commands` lists the command lines.
int RunCompletion(const std::vector<std::string>& args, const std::function<Commands()>& commands,
                  const Streams& streams);
int RunMan(const std::vector<std::string>& args, const std::function<Commands()>& commands,
           const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMMAND_TABLES_H_
