#include "common/text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

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

std::string EscapeControls(absl::string_view text) {
  std::string escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are C2 80 to C2 9F.
    const bool two_bytes =
        byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (two_bytes) {
      absl::StrAppendFormat(&escaped, "\\x%02x", static_cast<unsigned char>(text[++i]));
    } else if ((byte < 0x20 && byte != '\n') || byte == 0x7F) {
      absl::StrAppendFormat(&escaped, "\\x%02x", byte);
    } else {
      escaped += text[i];
    }
  }
  return escaped;
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

}  // namespace catchment
