// Blocks of text, one taking the place of the other on a terminal, one after the other elsewhere.
#ifndef CATCHMENT_CLI_SCREEN_H_
#define CATCHMENT_CLI_SCREEN_H_

#include <functional>
#include <ostream>
#include <string>

namespace catchment {

struct ScreenSize {
  int columns = 0;  // 0: no terminal
  int rows = 0;
};

// Of the terminal behind the file descriptor.
ScreenSize TerminalSize(int fd);

// On a terminal it draws on the alternate screen (ANSI), so that what was there before comes back at its end.
class Screen {
 public:
  // `size` is asked before each block: a terminal may be resized.
  Screen(std::ostream* out, std::function<ScreenSize()> size) : out_(*out), size_(std::move(size)) {}
  ~Screen() { Leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Lines end with a newline. What does not fit is cut off, and the last row says so.
  void Draw(const std::string& block);
  // Gives the terminal back. What is drawn next enters again.
  void Leave();

 private:
  std::ostream& out_;
  const std::function<ScreenSize()> size_;
  bool entered_ = false;
  bool drawn_ = false;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_SCREEN_H_
