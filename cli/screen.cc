#include "cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/progress.h"

namespace catchment {
namespace {

constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";  // alternate screen, no cursor
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kEraseRestOfLine[] = "\x1b[K";
constexpr char kEraseBelow[] = "\x1b[J";

}  // namespace

ScreenSize TerminalSize(int fd) {
  const int columns = TerminalColumns(fd);
  winsize size = {};
  const bool tells = columns > 0 && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0;
  return {columns, tells ? size.ws_row : 24};
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

}  // namespace catchment
