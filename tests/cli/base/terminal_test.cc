#include "cli/base/terminal.h"

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

constexpr char kText[] = "a\x1b]0;x\x07\r\tb\x7f\n\u00fc\u20ac\U0001f600\u009b\u202e\xff";
constexpr char kEscaped[] = "a\\x1b]0;x\\x07\\x0d\\x09b\\u007f\n\u00fc\u20ac\U0001f600\\u009b\\u202e\\xff";

class EscapingBufferTest : public ::testing::Test {
 protected:
  std::stringbuf target_;
  EscapingBuffer buffer_{&target_};
  std::ostream out_{&buffer_};
};

TEST_F(EscapingBufferTest, EscapesWhatChangesATerminal) {
  out_ << kText << std::flush;
  EXPECT_EQ(target_.str(), kEscaped);
}

TEST_F(EscapingBufferTest, CharactersMayArriveByteByByte) {
  for (const char* c = kText; *c != 0; ++c) out_ << *c;
  out_ << std::flush;
  EXPECT_EQ(target_.str(), kEscaped);
}

TEST_F(EscapingBufferTest, AnUnfinishedCharacterIsEscapedAtTheEnd) {
  out_ << "a\xe2\x80";
  EXPECT_EQ(target_.str(), "a");
  out_ << std::flush;
  EXPECT_EQ(target_.str(), "a\\xe2\\x80");
}

TEST_F(EscapingBufferTest, LinesAndBlocksControlTheTerminalAllTheSame) {
  StatusLine line(&out_, [] { return ScreenSize{80, 24}; });
  line.Draw("first \x1b[31m");
  line.Write("second");
  EXPECT_EQ(target_.str(), "\r\x1b[Kfirst \\x1b[31m\r\x1b[Ksecond\n");
  target_.str("");
  {
    Screen screen(&out_, [] { return ScreenSize{80, 24}; });
    screen.Draw("a\x1b\nb\n");
  }
  EXPECT_EQ(target_.str(),
            "\x1b[?1049h\x1b[?25l\x1b[H"
            "a\\x1b\x1b[K\r\nb\x1b[K\x1b[J\x1b[?25h\x1b[?1049l");
}

TEST(StatusLineTest, ErasesTheRowsIntoWhichANarrowerTerminalHasBrokenIt) {
  std::ostringstream out;
  int columns = 40;
  StatusLine line(&out, [&columns] { return ScreenSize{columns, 24}; });
  line.Draw(" one two three four five six seven eight", Bar(0.5, 4));
  EXPECT_EQ(out.str(), "\r\x1b[K━━── one two three four five six seven …");
  out.str("");
  columns = 20;
  line.Draw("short");
  EXPECT_EQ(out.str(), "\x1b[1A\r\x1b[J\r\x1b[Kshort");
}

TEST(TerminalTest, LinesAreBrokenToTheWidthAndColoursTakeNoRoom) {
  std::stringbuf target;
  EscapingBuffer buffer(
      &target,
      [] {
        return ScreenSize{12, 24};
      },
      /*has_colours=*/true);
  std::ostream out(&buffer);
  out << "  name  " << Coloured{Colour::kRed, "four"} << " five\n";
  EXPECT_EQ(target.str(), "  name\n      \x1b[31mfour\x1b[0m\n      five\n");
  target.str("");
  KeepLines({&out, &out});
  out << "one two three four\n";
  EXPECT_EQ(target.str(), "one two three four\n");
}

TEST(TerminalTest, ElsewhereThereAreNoColours) {
  std::stringbuf target;
  EscapingBuffer buffer(&target);
  std::ostream out(&buffer);
  out << Coloured{Colour::kRed, "a line that is as long as it is"} << "\n";
  EXPECT_EQ(target.str(), "a line that is as long as it is\n");
}

}  // namespace
}  // namespace catchment
