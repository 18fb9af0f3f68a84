#include "common/base/text.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace catchment {

std::string Count(int64_t n) {
  std::string text = absl::StrCat(n);
  const int first_digit = n < 0 ? 1 : 0;
  for (int at = static_cast<int>(text.size()) - 3; at > first_digit; at -= 3) text.insert(at, 1, ',');
  return text;
}

std::string Bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  // 999.5 would be written as 1000.
  while (std::abs(bytes) >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%.0f B", bytes);
  const int decimals = std::abs(bytes) < 9.995 ? 2 : std::abs(bytes) < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s", decimals, bytes, kUnits[unit]);
}

std::string Seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 9.95) return absl::StrFormat("%.1f s", seconds);
  const int64_t s = std::llround(seconds);
  if (s < 60) return absl::StrFormat("%d s", s);
  if (s < 3600) return absl::StrFormat("%d min %02d s", s / 60, s % 60);
  if (s < 86400) return absl::StrFormat("%d h %02d min", s / 3600, s % 3600 / 60);
  return absl::StrFormat("%d d %02d h", s / 86400, s % 86400 / 3600);
}

std::string Duration(double seconds) {
  return seconds < 1 ? absl::StrCat(Short(1000 * seconds, 3), " ms") : Seconds(seconds);
}

std::string Percent(double share) { return absl::StrFormat("%.2f %%", 100 * share); }

std::string Short(double value, int digits) { return absl::StrFormat("%.*g", digits, value); }

std::string Plural(int64_t n, const std::string& noun) {
  return absl::StrCat(Count(n), " ", noun, n == 1 ? "" : "s");
}

std::string EverySteps(int64_t steps) {
  return steps == 1 ? "every step" : absl::StrCat("every ", Count(steps), " steps");
}

std::string HangingParagraph(const std::string& head, const std::string& text, int indent, int width) {
  std::string out;
  std::string line = head;
  bool at_start = true;
  for (const auto& piece : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::string word(piece);
    if (!at_start && Columns(line) + 1 + Columns(word) > static_cast<size_t>(width)) {
      absl::StrAppend(&out, line, "\n");
      line.assign(indent, ' ');
      at_start = true;
    }
    absl::StrAppend(&line, at_start ? "" : " ", word);
    at_start = false;
  }
  return absl::StrCat(out, line, "\n");
}

namespace {

struct Character {
  size_t bytes = 0;  // 0: it is not UTF-8
  uint32_t code = 0;
};

// Returns the first character of a text that is not empty.
Character FirstOf(absl::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {1, lead};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return {};
    code = code << 6 | (next & 0x3F);
  }
  const bool has_shorter_form = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  if (has_shorter_form || is_surrogate || code > 0x10FFFF) return {};
  return {bytes, code};
}

// Control characters (C0, DEL, C1), and Unicode's line separators and direction controls.
bool IsControl(uint32_t code) {
  static constexpr uint32_t kRanges[][2] = {{0, 0x1F},        {0x7F, 0x9F},     {0x61C, 0x61C},
                                            {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x206F}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [code](const auto& range) { return code >= range[0] && code <= range[1]; });
}

// Calls `add` with each character of the escaped text.
template <typename Add>
void ForEachEscaped(absl::string_view text, bool one_line, const Add& add) {
  while (!text.empty()) {
    const Character first = FirstOf(text);
    const absl::string_view bytes = text.substr(0, std::max<size_t>(1, first.bytes));
    text.remove_prefix(bytes.size());
    if (bytes == "\n") {
      add(one_line ? "\\n" : bytes);
    } else if (first.bytes == 0) {
      add(absl::StrFormat("\\x%02x", static_cast<unsigned char>(bytes[0])));
    } else if (IsControl(first.code)) {
      // Above U+001F as in JSON, whose strings may have these characters as they are.
      add(first.code < 0x20 ? absl::StrFormat("\\x%02x", first.code)
                            : absl::StrFormat("\\u%04x", first.code));
    } else {
      add(bytes);
    }
  }
}

std::string Escape(absl::string_view text, bool one_line) {
  std::string escaped;
  ForEachEscaped(text, one_line, [&escaped](absl::string_view part) { absl::StrAppend(&escaped, part); });
  return escaped;
}

}  // namespace

std::string EscapeControls(absl::string_view text) { return Escape(text, false); }

std::string OneLine(absl::string_view text) { return Escape(text, true); }

std::string ShortLine(absl::string_view text, size_t most) {
  std::string line;
  bool fits = true;
  ForEachEscaped(text, true, [&](absl::string_view part) {
    fits = fits && line.size() + part.size() <= most;
    if (fits) absl::StrAppend(&line, part);
  });
  return line;
}

size_t Columns(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

bool Table::IsNumeric(size_t column) const {
  bool any = false;
  for (size_t r = has_head_ ? 1 : 0; r < rows_.size(); ++r) {
    if (column >= rows_[r].size() || rows_[r][column].empty()) continue;
    const std::string& cell = rows_[r][column];
    const bool is_shape = cell.find('x') != std::string::npos;
    if (is_shape || (!absl::ascii_isdigit(cell[0]) && cell[0] != '-')) return false;
    any = true;
  }
  return any;
}

std::string Table::Print(int indent) const {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Columns(row[c]));
  }
  std::string out;
  for (const std::vector<std::string>& row : rows_) {
    std::string line(indent, ' ');
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - Columns(row[c]), ' ');
      absl::StrAppend(&line, c == 0 ? "" : "  ", IsNumeric(c) ? padding + row[c] : row[c] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

namespace {

// Returns true if the first character needs more than one byte; for a letter, one of them is 0.
bool IsWide(absl::string_view content) {
  if (absl::StartsWith(content, "\xff\xfe") || absl::StartsWith(content, "\xfe\xff")) return true;
  return content.size() >= 2 && (content[0] == 0) != (content[1] == 0);
}

}  // namespace

absl::StatusOr<absl::string_view> Utf8Text(absl::string_view content, absl::string_view path) {
  if (IsWide(content)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is encoded in UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"));
  }
  return absl::StripPrefix(content, "\xef\xbb\xbf");
}

namespace {

// Returns the number of insertions, deletions and substitutions from a to b (Levenshtein 1966).
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string NearestName(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string wanted = absl::AsciiStrToLower(name);
  size_t best = std::max<size_t>(2, name.size() / 2) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(wanted, absl::AsciiStrToLower(candidate));
    if (distance >= best || distance >= candidate.size()) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace catchment
