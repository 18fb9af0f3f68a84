#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/text.h"

namespace catchment {
namespace {

constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";  // alternate screen, no cursor
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kEraseRestOfLine[] = "\x1b[K";
constexpr char kEraseBelow[] = "\x1b[J";
constexpr char kEraseLine[] = "\r\x1b[K";
// Sizes of terminals that do not report them.
constexpr int kUsualColumns = 80;
constexpr int kUsualRows = 24;

}  // namespace

ScreenSize TerminalSize(int fd) {
  if (isatty(fd) == 0) return {};
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  return {size.ws_col > 0 ? size.ws_col : kUsualColumns, size.ws_row > 0 ? size.ws_row : kUsualRows};
}

Streams StandardStreams() {
  return {&std::cout, &std::cerr, [] { return TerminalSize(STDOUT_FILENO); },
          [] { return TerminalSize(STDERR_FILENO); }};
}

std::string FitLine(const std::string& line, int columns) {
  if (columns <= 0 || Columns(line) <= static_cast<size_t>(columns)) return line;
  std::string cut;
  size_t used = 0;
  for (char c : line) {
    const bool begins = (c & 0xc0) != 0x80;
    if (begins && used + 1 >= static_cast<size_t>(columns)) break;
    used += begins;
    cut += c;
  }
  return cut + "…";
}

void Screen::Draw(const std::string& block) {
  const ScreenSize size = size_();
  if (size.columns == 0) {
    out_ << (drawn_ ? "\n" : "") << block << std::flush;
    drawn_ = true;
    return;
  }
  std::vector<std::string> lines = absl::StrSplit(absl::StripSuffix(block, "\n"), '\n');
  const size_t rows = size.rows;
  if (lines.size() > rows) {
    lines[rows - 1] = absl::StrCat("... ", lines.size() - rows + 1, " more lines");
    lines.resize(rows);
  }
  out_ << (entered_ ? "" : kEnter) << kHome;
  for (size_t i = 0; i < lines.size(); ++i) {
    out_ << (i == 0 ? "" : "\r\n") << FitLine(lines[i], size.columns) << kEraseRestOfLine;
  }
  out_ << kEraseBelow << std::flush;
  entered_ = true;
}

void Screen::Leave() {
  if (entered_) out_ << kLeave << std::flush;
  entered_ = false;
}

void StatusLine::Draw(const std::string& line) {
  if (columns_ == 0) return;
  out_ << kEraseLine << FitLine(line, columns_) << std::flush;
  drawn_ = true;
}

void StatusLine::Write(const std::string& text) {
  Clear();
  out_ << text << '\n' << std::flush;
}

void StatusLine::Clear() {
  if (drawn_) out_ << kEraseLine << std::flush;
  drawn_ = false;
}

}  // namespace catchment
