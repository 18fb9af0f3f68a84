#include "cli/command_tables.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::ordered_json Flag(const std::string& value, const std::string& bare = "") {
  return {{"name", "flag"}, {"value", value}, {"bare", bare}, {"help", "It's a flag: [one]. More."}};
}

Commands OneCommand(const std::string& value) {
  return {{{"name", "catchment go"},
           {"usage", "catchment go DIR\n\nGoes - quickly:\n  .first line\n  'second\n"},
           {"notes", ""},
           {"argument", "DIR"},
           {"flags", {Flag(value)}}}};
}

TEST(KindOfFlagTest, FollowsFromThePlaceholder) {
  EXPECT_EQ(KindOfFlag(Flag("")).kind, ValueKind::kSwitch);
  EXPECT_EQ(KindOfFlag(Flag("FILE")).kind, ValueKind::kFile);
  EXPECT_EQ(KindOfFlag(Flag("DIR")).kind, ValueKind::kDirectory);
  EXPECT_EQ(KindOfFlag(Flag("HOST:PORT")).kind, ValueKind::kAnything);
  EXPECT_THAT(KindOfFlag(Flag("worker|evaluator")).words, ElementsAre("worker", "evaluator"));
  EXPECT_THAT(KindOfFlag(Flag("auto", "true")).words, ElementsAre("auto", "true", "false"));
  EXPECT_TRUE(KindOfFlag(Flag("SECONDS", "2")).is_optional);
  EXPECT_FALSE(KindOfFlag(Flag("SECONDS")).is_optional);
}

TEST(KindOfPlaceholderTest, OfSeveralWordsIsThatOfPaths) {
  EXPECT_EQ(KindOfPlaceholder("HOST:PORT|DIR").kind, ValueKind::kDirectory);
  EXPECT_EQ(KindOfPlaceholder("JOB|RUN_DIR|HOST:PORT").kind, ValueKind::kFile);
  EXPECT_EQ(KindOfPlaceholder("A,B,...").kind, ValueKind::kList);
  EXPECT_THAT(KindOfPlaceholder("PATH=LOW..HIGH|A,B,...").words, ::testing::Contains("optimizer.momentum="));
  EXPECT_EQ(KindOfPlaceholder("samples:N|seconds:N").kind, ValueKind::kAnything);
}

TEST(SummaryOfTest, IsTheFirstSentence) {
  EXPECT_EQ(SummaryOf({{"usage", "catchment go DIR\n\nGoes\nquickly: in order. Then stops.\n"}}),
            "Goes quickly");
  EXPECT_EQ(SummaryOf({{"usage", "catchment go DIR\n\nGoes.\n\nExamples:\n"}}), "Goes");
  EXPECT_EQ(SummaryOf({{"usage", "catchment go"}}), "");
}

TEST(JsonOfProgramTest, ProgramWithoutADescriptionIsAnError) {
  EXPECT_TRUE(absl::IsUnavailable(JsonOfProgram("/no/program").status()));
  EXPECT_TRUE(absl::IsUnavailable(JsonOfProgram("/bin/true").status()));
}

TEST(ManPageTest, TextIsNeverARequestOfTroff) {
  const std::string page = ManPage("go", "1-2", OneCommand("A\\B"));
  EXPECT_THAT(page, HasSubstr("\n\\&.first line\n"));
  EXPECT_THAT(page, HasSubstr("\n\\(aqsecond\n"));
  EXPECT_THAT(page, HasSubstr("Goes \\- quickly:\n.RS 2\n.EX\n"));
  EXPECT_THAT(page, HasSubstr("\\fIA\\eB\\fR"));
  EXPECT_THAT(page, Not(HasSubstr("\n.first")));
}

TEST(ZshCompletionTest, HelpDoesNotEndTheDescription) {
  EXPECT_THAT(ZshCompletion(OneCommand("FILE")),
              HasSubstr(R"('*--flag=[It'\''s a flag\: (one)]:FILE:_files')"));
}

}  // namespace
}  // namespace catchment
