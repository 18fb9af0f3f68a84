// Text on a terminal: lines for its width, colours, and blocks and lines that replace each other.
#ifndef CATCHMENT_CLI_BASE_TERMINAL_H_
#define CATCHMENT_CLI_BASE_TERMINAL_H_

#include <functional>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>

#include "common/program/screen_text.h"

namespace catchment {

// The streams that a subcommand writes to.
struct Streams {
  using Size = std::function<ScreenSize()>;

  std::ostream* out;  // the result
  std::ostream* err;  // errors
  // Return the sizes of the terminals behind the streams, which users may change at any time.
  Size out_size = [] { return ScreenSize(); };
  Size err_size = [] { return ScreenSize(); };
};

// Returns those of this process. They escape what could change how a terminal shows the text
// (EscapeControls), since file names, arguments and the texts of a job may have anything in them; Screen and
// StatusLine control the terminal all the same, unless TERM is unset or "dumb": then there is none. Lines are
// wrapped to the width of a terminal (WrapLines).
Streams StandardStreams();
// Leaves the lines whole from here on, for programs.
void KeepLines(const Streams& streams);

enum class Colour { kBold = 1, kRed = 31, kGreen = 32, kYellow = 33 };
// A text in a colour, if the stream is that of a terminal and NO_COLOR is unset or empty.
struct Coloured {
  Colour colour;
  std::string text;
};
std::ostream& operator<<(std::ostream& out, const Coloured& coloured);

// The buffer of such a stream, which writes to `target`.
class EscapingBuffer final : public std::streambuf {
 public:
  // `size` returns the size of the terminal behind it.
  explicit EscapingBuffer(
      std::streambuf* target, Streams::Size size = [] { return ScreenSize(); }, bool has_colours = false)
      : target_(*target), size_(std::move(size)), has_colours_(has_colours) {}
  // Writes a text as it is.
  void WriteRaw(std::string_view text);
  // Begins a colour, or ends it (0).
  void SetColour(int colour);
  void KeepLines() { keeps_lines_ = true; }

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  // Escapes the first `size` bytes of what is pending. Writes them, on a terminal only whole lines.
  bool WritePending(size_t size);
  bool WriteLines(size_t size);

  std::streambuf& target_;
  const Streams::Size size_;
  const bool has_colours_;
  bool keeps_lines_ = false;
  std::string pending_;  // the beginning of a UTF-8 character
  std::string line_;     // what has been escaped, and colours
};

// Returns the width of paragraphs on standard output: at most `most`, and that of its terminal if it has one.
int ProseColumns(int most);

// Returns the line cut to `columns`, with an ellipsis. Does not cut it if `columns` is 0.
std::string FitLine(const std::string& line, int columns);

// Draws blocks of text. On a terminal each replaces the last one, on the alternate screen (ANSI), so that the
// text from before reappears at the end; elsewhere they follow each other.
class Screen {
 public:
  // Calls `size` before each block.
  Screen(std::ostream* out, Streams::Size size) : out_(*out), size_(std::move(size)) {}
  ~Screen() { Leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Draws a block of lines that end with a newline. Cuts off what does not fit; the last row then says so.
  void Draw(const std::string& block);
  // Restores the terminal. The next block enters the alternate screen again.
  void Leave();

 private:
  std::ostream& out_;
  const Streams::Size size_;
  bool entered_ = false;
  bool drawn_ = false;
};

// Writes lines that stay, and on a terminal one below them that is redrawn in place.
class StatusLine {
 public:
  // Calls `size` before each line, which the terminal may have broken since it became narrower.
  StatusLine(std::ostream* out, Streams::Size size) : out_(*out), size_(std::move(size)) {}

  int columns() const { return size_().columns; }
  // Redraws the last line, with `bar` before it in a colour; does nothing if there is no terminal.
  void Draw(const std::string& line, const std::string& bar = "");
  // Writes a line, or several, that stay.
  void Write(const std::string& text);
  // Removes the last line.
  void Clear();

 private:
  void Erase();

  std::ostream& out_;
  const Streams::Size size_;
  int drawn_ = 0;  // the columns of the last line
};

// Returns a bar of so many columns, with the share in heavy lines.
std::string Bar(double share, int columns);

}  // namespace catchment

#endif  // CATCHMENT_CLI_BASE_TERMINAL_H_
