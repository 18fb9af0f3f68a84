// Text that people read and write: numbers, times, tables, near misses of names, encodings.
//
// Threads: pure functions, no locale: a point before decimals, a comma between thousands, everywhere.
#ifndef CATCHMENT_COMMON_BASE_TEXT_H_
#define CATCHMENT_COMMON_BASE_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace catchment {

// Returns "1,199,882" for 1199882.
std::string Count(int64_t n);

// Returns bytes in the largest unit that leaves at least 1, with three digits: "999 B", "1.20 MB", "4.58 GB".
// Units are powers of 1000.
std::string Bytes(double bytes);

// Returns "0.4 s", "58 s", "3 min 02 s", "2 h 05 min", "3 d 04 h".
std::string Seconds(double seconds);

// Returns "12.3 ms" below a second, and what Seconds returns from there on.
std::string Duration(double seconds);

// Returns "98.77 %" for 0.98765.
std::string Percent(double share);

// Returns as many significant digits as needed, at most `digits`: "0.01", "1e-08", "12".
std::string Short(double value, int digits = 6);

// Returns "1 worker", "2 workers".
std::string Plural(int64_t n, const std::string& noun);

// Returns "every step", "every 4 steps".
std::string EverySteps(int64_t steps);

// Returns `text` in lines of at most `width` columns, after `head` and, from the second line on, indented by
// `indent`. Ends with a newline. `head` may be longer than `indent`.
std::string HangingParagraph(const std::string& head, const std::string& text, int indent, int width);

// A table with two spaces between columns. The first row is the head if `has_head`. A column is aligned to
// the right when every cell below the head is a number, with its unit, or empty; shapes ("28x28") are words.
class Table {
 public:
  explicit Table(bool has_head = true) : has_head_(has_head) {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Returns lines that begin with `indent` spaces and end with a newline, without a space before it.
  std::string Print(int indent = 2) const;

 private:
  bool IsNumeric(size_t column) const;

  bool has_head_;
  std::vector<std::vector<std::string>> rows_;
};

// Replaces what could change how a terminal or the reader of a log sees the text around it by "\x1b",
// "\u202e" and so on: control characters except line breaks, Unicode's direction controls and line
// separators, and bytes that are not UTF-8.
std::string EscapeControls(absl::string_view text);
// Does the same, and replaces line breaks by "\n". For texts of other processes in a log, an event or a
// table.
std::string OneLine(absl::string_view text);

// Returns OneLine of the text, or as much from its beginning as fits into `most` bytes.
std::string ShortLine(absl::string_view text, size_t most);

// Returns the columns of UTF-8 text on a terminal (one for each code point).
size_t Columns(const std::string& text);

// Returns the text of a file whose bytes are `content`: UTF-8, without the byte order mark that Windows'
// editors put before it. `path` is the file's name for errors.
// Errors: InvalidArgument for UTF-16 and UTF-32, as PowerShell's > and Excel's "Unicode text" write them.
absl::StatusOr<absl::string_view> Utf8Text(absl::string_view content, absl::string_view path);

// Returns the candidate with the fewest edits to `name`, ignoring case; empty if none is near.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_TEXT_H_
