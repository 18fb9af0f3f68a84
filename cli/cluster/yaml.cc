#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/cluster/manifests.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

// Returns true if YAML reads the word as a string without quotes.
bool IsPlain(const std::string& text) {
  static const auto* const values =
      new std::set<std::string>{"true", "false", "yes", "no", "on", "off", "y", "n", "null"};
  const auto plain = [](char c) { return absl::ascii_isalnum(c) || absl::StrContains("-./:=_", c); };
  const size_t first = text.find_first_not_of('-');
  return first != std::string::npos && (absl::ascii_isalpha(text[first]) || text[first] == '/') &&
         text.back() != ':' && std::all_of(text.begin(), text.end(), plain) &&
         values->count(absl::AsciiStrToLower(text)) == 0;
}

// Returns true if the text can be a literal block: it ends with its only final line break, and has no
// characters that YAML would read in another way.
bool IsBlock(const std::string& text) {
  const auto printable = [](char c) { return c == '\n' || absl::ascii_isprint(c); };
  return text.size() > 1 && text[0] != ' ' && text[0] != '\n' && text.back() == '\n' &&
         text[text.size() - 2] != '\n' && std::all_of(text.begin(), text.end(), printable);
}

std::string Block(const std::string& text, const std::string& indent) {
  std::string block = "|\n";
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::StrAppend(&block, line.empty() ? "" : indent, line, "\n");
  }
  return block;
}

bool IsNested(const Json& value) { return value.is_structured() && !value.empty(); }

// Returns a value that follows a key or a dash on its line.
std::string Scalar(const Json& value, const std::string& indent) {
  if (!value.is_string()) return absl::StrCat(value.dump(), "\n");
  const auto& text = value.get_ref<const std::string&>();
  if (IsBlock(text)) return Block(text, indent);
  // A JSON string is one of YAML, too.
  return absl::StrCat(IsPlain(text) ? text : value.dump(), "\n");
}

// Returns the lines of an object or an array that is not empty.
std::string Nested(const Json& value, const std::string& indent) {
  const std::string inner = indent + "  ";
  std::string lines;
  for (const auto& [key, element] : value.items()) {
    if (value.is_array()) {
      // The first line of an element follows the dash.
      const std::string text = IsNested(element) ? Nested(element, inner) : Scalar(element, inner);
      absl::StrAppend(&lines, indent, "- ", absl::StripPrefix(text, inner));
    } else if (IsNested(element)) {
      absl::StrAppend(&lines, indent, key, ":\n", Nested(element, inner));
    } else {
      absl::StrAppend(&lines, indent, key, ": ", Scalar(element, inner));
    }
  }
  return lines;
}

}  // namespace

std::string ToYaml(const Json& value) { return IsNested(value) ? Nested(value, "") : Scalar(value, "  "); }

}  // namespace catchment
