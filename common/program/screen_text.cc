#include "common/program/screen_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace catchment {
namespace {

// Sizes of terminals that do not report them.
constexpr int kUsualColumns = 80;
constexpr int kUsualRows = 24;
constexpr int kIndent = 4;  // of a second column that has no room beside the first

// Returns the words of `text` in lines after `head`, which continue after `indent` spaces.
std::string Paragraph(absl::string_view head, absl::string_view text, int indent, int width,
                      absl::string_view mark) {
  std::string out, line(head);
  bool at_start = true;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const bool ends_command = word == "\\";  // stays on its line
    if (!at_start && !ends_command &&
        ShownColumns(line) + 1 + ShownColumns(word) + ShownColumns(mark) > width) {
      absl::StrAppend(&out, line, mark, "\n");
      line.assign(indent, ' ');
      at_start = true;
    }
    absl::StrAppend(&line, at_start ? "" : " ", word);
    at_start = false;
  }
  return out + line;
}

std::string WrapLine(absl::string_view line, int width, absl::string_view mark) {
  if (ShownColumns(line) <= width) return std::string(line);
  const size_t first = std::min(line.find_first_not_of(' '), line.size());
  const int indent = std::min(static_cast<int>(first), width / 4);
  const size_t gap = line.find("  ", first);
  const size_t second = gap == absl::string_view::npos ? gap : line.find_first_not_of(' ', gap);
  if (second == absl::string_view::npos)
    return Paragraph(std::string(indent, ' '), line, indent + 2, width, mark);
  const absl::string_view head = line.substr(0, second), text = line.substr(second);
  const int column = ShownColumns(head);
  int longest = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' '))
    longest = std::max(longest, ShownColumns(word));
  if (2 * column <= width && column + longest <= width) return Paragraph(head, text, column, width, mark);
  const std::string below(indent + kIndent, ' ');
  return absl::StrCat(WrapLine(line.substr(0, gap), width, mark), "\n",
                      Paragraph(below, text, indent + kIndent, width, mark));
}

using Characters = std::vector<absl::string_view>;  // of a line, which has no colours
using Columns = std::pair<size_t, size_t>;          // of the screen, from the first to before the second

Characters CharactersOf(absl::string_view line) {
  Characters characters;
  while (!line.empty()) {
    size_t end = 1;
    while (end < line.size() && (line[end] & 0xc0) == 0x80) ++end;
    characters.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return characters;
}

// Returns the columns of a table, which at least two spaces separate in all lines. The first one includes the
// indentation.
std::vector<Columns> ColumnsOf(const std::vector<Characters>& rows) {
  std::set<size_t> inked;
  for (const Characters& row : rows) {
    for (size_t c = 0; c < row.size(); ++c)
      if (row[c] != " ") inked.insert(c);
  }
  std::vector<Columns> columns;
  for (const size_t c : inked) {
    if (columns.empty() || c - columns.back().second >= 2) columns.emplace_back(columns.empty() ? 0 : c, 0);
    columns.back().second = c + 1;
  }
  return columns;
}

// Returns the characters of some columns, without spaces at their end.
std::string TextOf(const Characters& row, Columns columns) {
  const size_t end = std::min(columns.second, row.size()), begin = std::min(columns.first, end);
  std::string text = absl::StrJoin(row.begin() + begin, row.begin() + end, "");
  absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

std::string Padded(std::string text, size_t columns) {
  text.append(columns - std::min<size_t>(columns, ShownColumns(text)), ' ');
  return text;
}

// Returns the columns after the first one in groups, each of which fits beside the first one if that is
// possible.
std::vector<std::vector<Columns>> Grouped(const std::vector<Columns>& columns, size_t width) {
  std::vector<std::vector<Columns>> groups;
  size_t used = width;
  for (auto column = columns.begin() + 1; column != columns.end(); ++column) {
    const size_t more = 2 + column->second - column->first;
    if (used + more > width) {
      groups.emplace_back();
      used = columns[0].second;
    }
    groups.back().push_back(*column);
    used += more;
  }
  return groups;
}

// Returns the rows with some columns after the first one; those that have nothing in them only if `all`.
std::vector<std::string> RowsWith(const std::vector<Columns>& shown, const std::vector<Characters>& rows,
                                  size_t first, bool all) {
  std::vector<std::string> lines;
  for (const Characters& row : rows) {
    const std::string name = TextOf(row, {0, first});
    std::string line = name;
    size_t begin = first + 2;
    for (const Columns& column : shown) {
      if (const std::string text = TextOf(row, column); !text.empty()) line = Padded(line, begin) + text;
      begin += column.second - column.first + 2;
    }
    if (all || line != name) lines.push_back(line);
  }
  return lines;
}

// Returns the rows with their last column, from `last` on, broken to the width.
std::vector<std::string> BrokenAt(size_t last, const std::vector<Characters>& rows, int width) {
  std::vector<std::string> lines;
  for (const Characters& row : rows) {
    const std::string head = Padded(TextOf(row, {0, last}), last), text = TextOf(row, {last, row.size()});
    for (const absl::string_view line : absl::StrSplit(Paragraph(head, text, last, width, ""), '\n'))
      lines.emplace_back(absl::StripTrailingAsciiWhitespace(line));
  }
  return lines;
}

// Returns the rows of a table as WrapLines has them, and other lines as they are.
std::vector<std::string> FitTable(const std::vector<absl::string_view>& lines, size_t width) {
  const std::vector<std::string> whole(lines.begin(), lines.end());
  const auto is_wide = [=](absl::string_view line) { return ShownColumns(line) > static_cast<int>(width); };
  const auto has_colour = [](absl::string_view line) { return absl::StrContains(line, '\x1b'); };
  if (absl::c_none_of(lines, is_wide) || absl::c_any_of(lines, has_colour)) return whole;
  std::vector<Characters> rows;
  for (const absl::string_view line : lines) rows.push_back(CharactersOf(line));
  const std::vector<Columns> columns = ColumnsOf(rows);
  std::set<std::string> names;
  for (const Characters& row : rows) names.insert(columns.empty() ? "" : TextOf(row, columns[0]));
  if (rows.size() < 2 || columns.size() < 3 || names.size() < rows.size()) return whole;
  const size_t last = columns.back().first;
  if (columns[columns.size() - 2].second <= width && 2 * last <= width) return BrokenAt(last, rows, width);
  std::vector<std::string> tables;
  for (const std::vector<Columns>& group : Grouped(columns, width)) {
    if (!tables.empty()) tables.emplace_back();
    absl::c_move(RowsWith(group, rows, columns[0].second, tables.empty()), std::back_inserter(tables));
  }
  return tables;
}

}  // namespace

ScreenSize TerminalSize(int fd) {
  if (isatty(fd) == 0) return {};
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  return {size.ws_col > 0 ? size.ws_col : kUsualColumns, size.ws_row > 0 ? size.ws_row : kUsualRows};
}

int ShownColumns(absl::string_view text) {
  int columns = 0;
  bool in_colour = false;
  for (const char c : text) {
    if (!in_colour && c != '\x1b') columns += (c & 0xc0) != 0x80;
    in_colour = c == '\x1b' || (in_colour && c != 'm');
  }
  return columns;
}

std::string WrapLines(absl::string_view text, int width, absl::string_view mark) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  std::vector<std::string> wrapped;
  for (auto begin = lines.begin(); begin != lines.end();) {
    // A table's lines are all indented, or none is.
    const auto end = std::find_if(begin + 1, lines.end(), [begin](absl::string_view line) {
      return line.empty() || begin->empty() || (line[0] == ' ') != ((*begin)[0] == ' ');
    });
    for (const std::string& line : FitTable({begin, end}, width))
      wrapped.push_back(WrapLine(line, width, mark));
    begin = end;
  }
  return absl::StrJoin(wrapped, "\n");
}

std::string FillHelp(absl::string_view text, int width) {
  std::string filled, paragraph;
  const auto end = [&] {
    if (!paragraph.empty()) absl::StrAppend(&filled, Paragraph("", paragraph, 0, width, ""), "\n");
    paragraph.clear();
  };
  bool verbatim = false;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    const bool indented = absl::StartsWith(line, " ");
    verbatim = indented && (verbatim || absl::EndsWith(paragraph, ":") || absl::EndsWith(filled, ":\n"));
    if (verbatim || line.empty()) {
      end();
      absl::StrAppend(&filled, WrapLines(line, width, " \\"), "\n");
    } else {
      absl::StrAppend(&paragraph, paragraph.empty() ? "" : " ", absl::StripLeadingAsciiWhitespace(line));
    }
  }
  end();
  return filled;
}

}  // namespace catchment
