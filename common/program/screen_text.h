// The size of a terminal, and text that is broken to its width.
//
// Threads: pure functions, except that TerminalSize asks the system.
#ifndef CATCHMENT_COMMON_PROGRAM_SCREEN_TEXT_H_
#define CATCHMENT_COMMON_PROGRAM_SCREEN_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace catchment {

struct ScreenSize {
  int columns = 0;  // 0: not a terminal
  int rows = 0;
};

// Returns the size of the terminal behind the file descriptor; zeros if there is none.
ScreenSize TerminalSize(int fd);

// Returns the columns of UTF-8 text on a terminal: one for each code point, none for colours (ECMA-48 SGR).
int ShownColumns(absl::string_view text);

// Returns the text with each line that is wider than `width` columns broken at spaces, and `mark` at the end
// of its parts. They continue below the line's second column, which two spaces separate from the first, or
// indented if there is none. A wider word stays whole. A table of three columns or more, each of whose rows
// has a name of its own, becomes several tables below each other, which all begin with the names, or if there
// is enough space, only its last column is broken.
std::string WrapLines(absl::string_view text, int width, absl::string_view mark = "");

// Returns the text of a help for a width: joins the lines of each paragraph and breaks them again, but only
// breaks the indented lines below one that ends with a colon, such as commands, with a backslash.
std::string FillHelp(absl::string_view text, int width);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_PROGRAM_SCREEN_TEXT_H_
