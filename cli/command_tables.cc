#include "cli/command_tables.h"

#include <algorithm>
#include <cstdio>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/base/process.h"

namespace catchment {
namespace {

bool IsWord(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, [](char c) { return absl::ascii_islower(c) || c == '_'; });
}

}  // namespace

ValueKind KindOfPlaceholder(absl::string_view placeholder) {
  const std::vector<std::string> parts = absl::StrSplit(placeholder, '|');
  const auto has = [&parts](absl::string_view wanted) { return absl::c_linear_search(parts, wanted); };
  if (has("FILE") || has("JOB")) return {ValueKind::kFile};
  if (has("DIR") || has("DIR...") || has("RUN_DIR")) return {ValueKind::kDirectory};
  if (parts.size() > 1 && absl::c_all_of(parts, IsWord)) return {ValueKind::kWords, parts};
  return {ValueKind::kAnything};
}

ValueKind KindOfFlag(const nlohmann::ordered_json& flag) {
  const std::string value = flag["value"], bare = flag["bare"];
  if (value.empty()) return {ValueKind::kSwitch, {"true", "false"}, true};
  if (value == "auto") return {ValueKind::kWords, {"auto", "true", "false"}, true};
  ValueKind kind = KindOfPlaceholder(value);
  kind.is_optional = !bare.empty();
  return kind;
}

std::string SummaryOf(const nlohmann::ordered_json& command) {
  const std::string usage = command["usage"];
  const size_t begin = usage.find("\n\n");
  if (begin == std::string::npos) return "";
  std::string text = usage.substr(begin + 2);
  text = text.substr(0, text.find("\n\n"));
  std::replace(text.begin(), text.end(), '\n', ' ');
  const size_t end = std::min({text.find(". "), text.find(": "), text.find("; ")});
  return std::string(absl::StripSuffix(absl::StripAsciiWhitespace(text.substr(0, end)), "."));
}

absl::StatusOr<nlohmann::ordered_json> CommandOfProgram(const std::string& path) {
  FILE* const output = popen(absl::StrCat(ShellQuoted(path), " --help=json 2>/dev/null").c_str(), "r");
  if (output == nullptr) return absl::UnavailableError(absl::StrCat("cannot run ", path));
  std::string text;
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof(buffer), output)) text.append(buffer, count);
  pclose(output);
  auto command = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (command.is_object()) return command;
  return absl::UnavailableError(absl::StrCat(path, " does not describe its flags"));
}

}  // namespace catchment
