#include "cli/command_tables.h"

#include <algorithm>
#include <cstdio>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/job/presets.h"
#include "proto/job.pb.h"

namespace catchment {
namespace {

bool IsWord(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, [](char c) { return absl::ascii_islower(c) || c == '_'; });
}

// Adds the fields that have a single value, "optimizer.learning_rate=". Layers are not completed, since there
// are several.
void AddFields(const google::protobuf::Descriptor& message, const std::string& prefix, int depth,
               std::vector<std::string>* fields) {
  constexpr int kDeepest = 4;
  for (int i = 0; i < message.field_count() && depth < kDeepest; ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    if (field.is_repeated()) continue;
    const std::string path = prefix + field.name();
    if (field.message_type() == nullptr) {
      fields->push_back(path + "=");
    } else {
      AddFields(*field.message_type(), path + ".", depth + 1, fields);
    }
  }
}

std::vector<std::string> FieldsOfJobs() {
  std::vector<std::string> fields;
  AddFields(*v1::Job::descriptor(), "", 0, &fields);
  return fields;
}

}  // namespace

ValueKind KindOfPlaceholder(absl::string_view placeholder) {
  if (absl::StartsWith(placeholder, "PATH=")) return {ValueKind::kFields, FieldsOfJobs()};
  if (placeholder == "A,B,...") return {ValueKind::kList, PresetNames()};
  if (placeholder == "DEVICE") return {ValueKind::kWords, {"auto", "cpu", "cuda"}};
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

absl::StatusOr<nlohmann::ordered_json> JsonOfProgram(const std::string& command) {
  FILE* const output = popen(absl::StrCat(command, " 2>/dev/null").c_str(), "r");
  if (output == nullptr) return absl::UnavailableError(absl::StrCat("cannot run ", command));
  std::string text;
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof(buffer), output)) text.append(buffer, count);
  pclose(output);
  auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_structured()) return json;
  return absl::UnavailableError(absl::StrCat(command, " does not describe its flags"));
}

}  // namespace catchment
