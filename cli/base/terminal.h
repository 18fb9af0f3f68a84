// Text on a terminal: its size, lines cut to its width, and blocks and lines that replace each other.
#ifndef CATCHMENT_CLI_BASE_TERMINAL_H_
#define CATCHMENT_CLI_BASE_TERMINAL_H_

#include <functional>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>

namespace catchment {

struct ScreenSize {
  int columns = 0;  // 0: not a terminal
  int rows = 0;
};

// Returns the size of the terminal behind the file descriptor; zeros if there is none.
ScreenSize TerminalSize(int fd);

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
// StatusLine control the terminal all the same.
Streams StandardStreams();

// The buffer of such a stream, which writes to `target`.
class EscapingBuffer final : public std::streambuf {
 public:
  explicit EscapingBuffer(std::streambuf* target) : target_(*target) {}
  // Writes a text as it is.
  void WriteRaw(std::string_view text);

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override;

 private:
  // Writes the first `size` bytes of what is pending.
  bool WritePending(size_t size);

  std::streambuf& target_;
  std::string pending_;  // the beginning of a UTF-8 character
};

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
  // `columns` is the width of the terminal; 0: not a terminal.
  StatusLine(std::ostream* out, int columns) : out_(*out), columns_(columns) {}

  // Redraws the last line; does nothing if there is no terminal.
  void Draw(const std::string& line);
  // Writes a line, or several, that stay.
  void Write(const std::string& text);
  // Removes the last line.
  void Clear();

 private:
  std::ostream& out_;
  const int columns_;
  bool drawn_ = false;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_BASE_TERMINAL_H_
