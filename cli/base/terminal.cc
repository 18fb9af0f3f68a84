#include "cli/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
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

// Returns the bytes at the end of the text with which a UTF-8 character begins that is not complete.
size_t UnfinishedCharacter(std::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
    const auto byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if (byte < 0x80) return 0;
    if (byte >= 0xC0) return bytes < (byte >= 0xF0 ? 4u : byte >= 0xE0 ? 3u : 2u) ? bytes : 0;
  }
  return 0;
}

// Controls the terminal behind a stream.
void Control(std::ostream* out, std::string_view sequence) {
  if (auto* const escaping = dynamic_cast<EscapingBuffer*>(out->rdbuf())) return escaping->WriteRaw(sequence);
  *out << sequence;
}

}  // namespace

ScreenSize TerminalSize(int fd) {
  if (isatty(fd) == 0) return {};
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  return {size.ws_col > 0 ? size.ws_col : kUsualColumns, size.ws_row > 0 ? size.ws_row : kUsualRows};
}

void EscapingBuffer::WriteRaw(std::string_view text) {
  WritePending(pending_.size());
  target_.sputn(text.data(), static_cast<std::streamsize>(text.size()));
}

bool EscapingBuffer::WritePending(size_t size) {
  const std::string text = EscapeControls(pending_.substr(0, size));
  pending_.erase(0, size);
  const auto written = target_.sputn(text.data(), static_cast<std::streamsize>(text.size()));
  return written == static_cast<std::streamsize>(text.size());
}

EscapingBuffer::int_type EscapingBuffer::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char one = traits_type::to_char_type(c);
  return xsputn(&one, 1) == 1 ? c : traits_type::eof();
}

std::streamsize EscapingBuffer::xsputn(const char* text, std::streamsize size) {
  pending_.append(text, size);
  return WritePending(pending_.size() - UnfinishedCharacter(pending_)) ? size : 0;
}

int EscapingBuffer::sync() { return WritePending(pending_.size()) && target_.pubsync() == 0 ? 0 : -1; }

Streams StandardStreams() {
  static auto* const out = new std::ostream(new EscapingBuffer(std::cout.rdbuf()));
  static auto* const err = new std::ostream(new EscapingBuffer(std::cerr.rdbuf()));
  err->setf(std::ios_base::unitbuf);
  return {out, err, [] { return TerminalSize(STDOUT_FILENO); }, [] { return TerminalSize(STDERR_FILENO); }};
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
  if (!entered_) Control(&out_, kEnter);
  Control(&out_, kHome);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) Control(&out_, "\r\n");
    out_ << FitLine(lines[i], size.columns);
    Control(&out_, kEraseRestOfLine);
  }
  Control(&out_, kEraseBelow);
  out_ << std::flush;
  entered_ = true;
}

void Screen::Leave() {
  if (entered_) Control(&out_, kLeave);
  out_ << std::flush;
  entered_ = false;
}

void StatusLine::Draw(const std::string& line) {
  if (columns_ == 0) return;
  Control(&out_, kEraseLine);
  out_ << FitLine(line, columns_) << std::flush;
  drawn_ = true;
}

void StatusLine::Write(const std::string& text) {
  Clear();
  out_ << text << '\n' << std::flush;
}

void StatusLine::Clear() {
  if (drawn_) Control(&out_, kEraseLine);
  out_ << std::flush;
  drawn_ = false;
}

}  // namespace catchment
