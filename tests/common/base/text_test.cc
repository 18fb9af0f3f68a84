#include "common/base/text.h"

#include "gtest/gtest.h"

namespace catchment {
namespace {

TEST(CountTest, SeparatesThousands) {
  EXPECT_EQ(Count(0), "0");
  EXPECT_EQ(Count(999), "999");
  EXPECT_EQ(Count(1000), "1,000");
  EXPECT_EQ(Count(1199882), "1,199,882");
  EXPECT_EQ(Count(-123456), "-123,456");
}

TEST(BytesTest, TakesTheLargestUnitThatLeavesOne) {
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(999), "999 B");
  EXPECT_EQ(Bytes(1000), "1.00 kB");
  EXPECT_EQ(Bytes(4799528), "4.80 MB");
  EXPECT_EQ(Bytes(45.67e9), "45.7 GB");
  EXPECT_EQ(Bytes(999.6e6), "1.00 GB");
  EXPECT_EQ(Bytes(9.996e6), "10.0 MB");
}

TEST(SecondsTest, TakesTwoUnitsAtMost) {
  EXPECT_EQ(Seconds(0.42), "0.4 s");
  EXPECT_EQ(Seconds(9.96), "10 s");
  EXPECT_EQ(Seconds(59.6), "1 min 00 s");
  EXPECT_EQ(Seconds(125), "2 min 05 s");
  EXPECT_EQ(Seconds(7500), "2 h 05 min");
  EXPECT_EQ(Seconds(100000), "1 d 03 h");
  EXPECT_EQ(Seconds(-1), "?");
  EXPECT_EQ(Seconds(1e300 * 1e300), "?");
}

TEST(PercentTest, HasTwoDecimals) {
  EXPECT_EQ(Percent(0.98765), "98.77 %");
  EXPECT_EQ(Percent(1), "100.00 %");
}

TEST(PluralTest, KnowsOne) {
  EXPECT_EQ(Plural(1, "worker"), "1 worker");
  EXPECT_EQ(Plural(0, "worker"), "0 workers");
  EXPECT_EQ(Plural(1200, "worker"), "1,200 workers");
}

TEST(HangingParagraphTest, IndentsFromTheSecondLineOn) {
  EXPECT_EQ(HangingParagraph("ab  ", "one two three", 4, 12), "ab  one two\n    three\n");
}

TEST(TableTest, AlignsNumbersRightAndWordsLeft) {
  Table table;
  table.Add({"layer", "parameters", "note"});
  table.Add({"conv1", "320", "a"});
  table.Add({"dense10", "1,179,776", ""});
  EXPECT_EQ(table.Print(1),
            " layer    parameters  note\n"
            " conv1           320  a\n"
            " dense10   1,179,776\n");
}

TEST(TableTest, WithoutAHeadTheFirstRowCounts) {
  Table table(/*has_head=*/false);
  table.Add({"a", "x1"});
  table.Add({"bb", "22"});
  EXPECT_EQ(table.Print(0), "a   x1\nbb  22\n");
}

TEST(EscapeControlsTest, LeavesLettersAndLineBreaks) {
  EXPECT_EQ(EscapeControls("a\nM\xc3\xbcnchen \x1b[31m\x7f\t"), "a\nM\xc3\xbcnchen \\x1b[31m\\u007f\\x09");
  EXPECT_EQ(EscapeControls("\xc2\x9b"
                           "31m \xc2\xa7"),
            "\\u009b31m \xc2\xa7")
      << "an escape sequence of one character";
}

TEST(EscapeControlsTest, LeavesNothingThatChangesHowTheRestIsSeen) {
  EXPECT_EQ(EscapeControls("a\u202egnp.exe\u2066b\u2069\u200e\u200f\u061c"),
            "a\\u202egnp.exe\\u2066b\\u2069\\u200e\\u200f\\u061c");
  EXPECT_EQ(EscapeControls("a\u2028b\u2029c\u0085d"), "a\\u2028b\\u2029c\\u0085d");
  EXPECT_EQ(EscapeControls("\u20ac \U0001f600 \u200b \u05d0"), "\u20ac \U0001f600 \u200b \u05d0");
}

TEST(EscapeControlsTest, BytesThatAreNotUtf8) {
  EXPECT_EQ(EscapeControls("a\x9b\x33\x31m\xff"), "a\\x9b31m\\xff") << "some terminals know 9b alone";
  EXPECT_EQ(EscapeControls("\xe2\x80"), "\\xe2\\x80") << "the beginning of U+202E";
  EXPECT_EQ(EscapeControls("\xc1\x9b \xe0\x82\x9b \xf0\x80\x82\x9b"),
            "\\xc1\\x9b \\xe0\\x82\\x9b \\xf0\\x80\\x82\\x9b")
      << "longer forms of U+009B";
  EXPECT_EQ(EscapeControls("\xed\xa0\x80\xf4\x90\x80\x80"), "\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80");
}

TEST(OneLineTest, EscapesLineBreaksToo) {
  EXPECT_EQ(OneLine("a\nE20261125 b\r\n"), "a\\nE20261125 b\\x0d\\n");
  EXPECT_EQ(OneLine(OneLine("a\n\u202e")), OneLine("a\n\u202e")) << "what was escaped stays as it is";
}

TEST(ShortLineTest, CutsBetweenCharacters) {
  EXPECT_EQ(ShortLine("a\nb", 100), "a\\nb");
  EXPECT_EQ(ShortLine("ab\u20accd", 5), "ab\u20ac");
  EXPECT_EQ(ShortLine("ab\u20accd", 4), "ab");
  EXPECT_EQ(ShortLine("ab\x1b[m", 5), "ab");
  EXPECT_EQ(ShortLine("abc", 0), "");
}

TEST(ColumnsTest, CountsCodePoints) { EXPECT_EQ(Columns("a…é"), 3u); }

}  // namespace
}  // namespace catchment
