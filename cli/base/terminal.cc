#include "cli/base/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "absl/strings/match.h"
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

// Returns the bytes at the end of the text with which a UTF-8 character begins that is not complete.
size_t UnfinishedCharacter(std::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
    const auto byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if (byte < 0x80) return 0;
    if (byte >= 0xC0) return bytes < (byte >= 0xF0 ? 4u : byte >= 0xE0 ? 3u : 2u) ? bytes : 0;
  }
  return 0;
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Controls the terminal behind a stream.
void Control(std::ostream* out, std::string_view sequence) {
  if (auto* const escaping = dynamic_cast<EscapingBuffer*>(out->rdbuf())) return escaping->WriteRaw(sequence);
  *out << sequence;
}

}  // namespace

void EscapingBuffer::WriteRaw(std::string_view text) {
  WritePending(pending_.size());
  WriteLines(line_.size());
  target_.sputn(text.data(), static_cast<std::streamsize>(text.size()));
}

bool EscapingBuffer::WritePending(size_t size) {
  line_ += EscapeControls(pending_.substr(0, size));
  pending_.erase(0, size);
  return WriteLines(size_().columns > 0 ? line_.rfind('\n') + 1 : line_.size());
}

bool EscapingBuffer::WriteLines(size_t size) {
  std::string text = line_.substr(0, size);
  line_.erase(0, size);
  if (const int columns = size_().columns; columns > 0 && !keeps_lines_) text = WrapLines(text, columns);
  const auto written = target_.sputn(text.data(), static_cast<std::streamsize>(text.size()));
  return written == static_cast<std::streamsize>(text.size());
}

void EscapingBuffer::SetColour(int colour) {
  WritePending(pending_.size());
  if (has_colours_) line_ += absl::StrCat("\x1b[", colour, "m");
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

int EscapingBuffer::sync() {
  const bool written = WritePending(pending_.size()) && WriteLines(line_.size());
  return written && target_.pubsync() == 0 ? 0 : -1;
}

Streams StandardStreams() {
  const std::string terminal = Environment("TERM");
  const bool is_plain = terminal.empty() || terminal == "dumb";
  const bool has_colours = !is_plain && Environment("NO_COLOR").empty();
  const auto stream = [&](std::streambuf* target, int fd) {
    const auto size = [fd] { return TerminalSize(fd); };
    return new std::ostream(new EscapingBuffer(target, size, has_colours && size().columns > 0));
  };
  static auto* const out = stream(std::cout.rdbuf(), STDOUT_FILENO);
  static auto* const err = stream(std::cerr.rdbuf(), STDERR_FILENO);
  const auto size_of = [is_plain](int fd) {
    return [=] { return is_plain ? ScreenSize() : TerminalSize(fd); };
  };
  return {out, err, size_of(STDOUT_FILENO), size_of(STDERR_FILENO)};
}

void KeepLines(const Streams& streams) {
  if (auto* const escaping = dynamic_cast<EscapingBuffer*>(streams.out->rdbuf())) escaping->KeepLines();
}

std::ostream& operator<<(std::ostream& out, const Coloured& coloured) {
  auto* const escaping = dynamic_cast<EscapingBuffer*>(out.rdbuf());
  if (escaping == nullptr) return out << coloured.text;
  escaping->SetColour(static_cast<int>(coloured.colour));
  out << coloured.text;
  escaping->SetColour(0);
  return out;
}

int ProseColumns(int most) {
  const int columns = TerminalSize(STDOUT_FILENO).columns;
  return columns > 0 ? std::min(columns, most) : most;
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

void StatusLine::Draw(const std::string& line, const std::string& bar) {
  const int columns = size_().columns;
  if (columns == 0) return;
  Erase();
  const std::string fitted = FitLine(bar + line, columns);
  const size_t coloured = absl::StartsWith(fitted, bar) ? bar.size() : 0;
  if (coloured > 0) out_ << Coloured{Colour::kGreen, bar};
  out_ << fitted.substr(coloured) << std::flush;
  drawn_ = ShownColumns(fitted);
}

void StatusLine::Erase() {
  const int columns = std::max(1, size_().columns);
  if (drawn_ > columns) Control(&out_, absl::StrCat("\x1b[", (drawn_ - 1) / columns, "A\r", kEraseBelow));
  Control(&out_, kEraseLine);
}

void StatusLine::Write(const std::string& text) {
  Clear();
  out_ << text << '\n' << std::flush;
}

void StatusLine::Clear() {
  if (drawn_ > 0) Erase();
  out_ << std::flush;
  drawn_ = 0;
}

std::string Bar(double share, int columns) {
  const int heavy = static_cast<int>(std::clamp(share, 0.0, 1.0) * columns);
  std::string bar;
  for (int i = 0; i < columns; ++i) bar += i < heavy ? "━" : "─";
  return bar;
}

}  // namespace catchment
