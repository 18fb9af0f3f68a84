#include "common/program/screen_text.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace catchment {
namespace {

TEST(WrapLinesTest, BreaksLinesBelowTheirSecondColumn) {
  const std::pair<std::string, std::string> kCases[] = {
      {"one two three", "one two\n  three"},
      {"  one two three", "  one two\n    three"},
      {"  a  one two three", "  a  one two\n     three"},
      {"  --flag=VALUE  one two three", "  --flag=VALUE\n      one\n      two\n      three"},
      {"  a  a/long/path", "  a\n      a/long/path"},
      {"a\nb", "a\nb"},
      {"a  b  one two", "a  b one two"},
      {"a  b  one two\na  c", "a  b one two\na  c"},
      {"a/long/path-too \\", "a/long/path-too \\"},
      {"\x1b[32mone two\x1b[0m six", "\x1b[32mone two\x1b[0m six"},
  };
  for (const auto& [line, broken] : kCases) EXPECT_EQ(WrapLines(line, 12), broken);
  EXPECT_EQ(WrapLines("  go --to=there --now", 16, " \\"), "  go \\\n    --to=there \\\n    --now");
}

TEST(WrapLinesTest, SplitsTablesBetweenTheirColumns) {
  const char* const table = "title\n  é    size  name of it\n  a   12 MB  x\n  bb         y é\n  c    1 MB\n";
  EXPECT_EQ(WrapLines(table, 24), table);
  EXPECT_EQ(WrapLines(table, 16),
            "title\n  é    size\n  a   12 MB\n  bb\n  c    1 MB\n\n  é   name of it\n  a   x\n  bb  y é\n");
  // The last column of a table that fits without it.
  EXPECT_EQ(WrapLines("a  b  one two three four\nc  d  e\nf", 14),
            "a  b  one two\n      three\n      four\nc  d  e\nf");
}

TEST(FillHelpTest, FillsParagraphsAndBreaksCommandsWithABackslash) {
  const char* const given =
      "go DIR\n\nGoes to\nDIR and back.\n\nExamples:\n  go a --now-or\n  go b     later\n";
  EXPECT_EQ(FillHelp(given, 12),
            "go DIR\n\nGoes to DIR\nand back.\n\nExamples:\n  go a \\\n    --now-or\n  go b\n      later\n");
  EXPECT_EQ(FillHelp("\nOne.\nTwo.\n", 80), "\nOne. Two.\n");
}

TEST(TerminalSizeTest, IsZeroOfWhatIsNotATerminal) { EXPECT_EQ(TerminalSize(-1).columns, 0); }

}  // namespace
}  // namespace catchment
