#include "common/measures/phrases.h"

#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/text.h"
#include "common/measures/measures.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

// Returns a number in its unit.
std::string Written(const Json& number, const std::string& unit) {
  const double value = number.get<double>();
  if (unit == "s") return value > 0 ? Duration(value) : Seconds(value);
  if (unit == "us") return Duration(value / 1e6);
  if (unit == "bytes") return Bytes(value);
  if (unit == "ratio") return Percent(value);
  if (unit == "%") return Percent(value / 100);
  if (unit == "samples/s") return Count(std::llround(value));
  if (unit == "J") return absl::StrCat(Count(std::llround(value)), " J");
  return number.is_number_integer() ? Count(number.get<int64_t>()) : Short(value, 4);
}

// Appends the value of "KEY" or "KEY:NOUN". Returns false if there is none.
bool AppendValue(const std::string& word, const Json& facts, bool zeros, std::string* text) {
  const std::vector<std::string> names = absl::StrSplit(word, ':');
  const auto found = facts.find(names[0]);
  if (found == facts.end() || !(found->is_number() || found->is_string()) || *found == "") return false;
  if (found->is_string()) {
    *text += found->get<std::string>();
    return true;
  }
  if (!zeros && *found == 0) return false;
  *text += names.size() > 1 ? Plural(std::llround(found->get<double>()), names[1])
                            : Written(*found, UnitOf(names[0]));
  return true;
}

}  // namespace

std::string Phrase(const std::string& phrase, const Json& facts, bool zeros) {
  std::string text;
  for (const auto& part : absl::StrSplit(phrase, '|')) {
    std::string said;
    bool known = absl::StrContains(part, '{') || !text.empty();
    for (const auto& piece : absl::StrSplit(part, '{')) {
      const std::pair<std::string, std::string> halves = absl::StrSplit(piece, absl::MaxSplits('}', 1));
      const bool has_value = absl::StrContains(piece, '}');
      known = known && (!has_value || AppendValue(halves.first, facts, zeros, &said));
      said += has_value ? halves.second : halves.first;
    }
    if (known) absl::StrAppend(&text, text.empty() || said[0] == ';' ? "" : ", ", said);
  }
  return text;
}

std::string Phrase(const PhraseRow& row, const Json& facts) {
  if (row.unless_zero && Phrase(row.phrase, facts, /*zeros=*/false).empty()) return "";
  return Phrase(row.phrase, facts);
}

}  // namespace catchment
