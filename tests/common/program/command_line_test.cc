#include "common/program/command_line.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() {
    flags_.AddString("out", "DIR", &out_, "Where everything goes.");
    flags_.AddInt("workers", "N", 1, &workers_, "Worker processes.");
    flags_.AddSeconds("stall_seconds", &stall_, "A bound.");
    flags_.AddOptionalSeconds("watch", 2, &watch_, "Again.");
    flags_.AddNumber("loss", &loss_, "A probability.");
    flags_.AddParsed(
        "even", "N",
        [this](const std::string& text) -> absl::Status {
          even_ += text;
          return text == "2" ? absl::OkStatus() : absl::InvalidArgumentError("is not 2");
        },
        "An even number.");
    flags_.AddSwitch("json", &json_, "Only JSON.");
    flags_.AddAutoSwitch("resume", &resume_, "Continues.");
    flags_.AddList("set", "PATH=VALUE", &set_, "Changes a field.");
  }

  std::vector<std::string> MustParse(const std::vector<std::string>& args) {
    const auto positional = flags_.Parse(args);
    EXPECT_TRUE(positional.ok()) << positional.status();
    return positional.ok() ? *positional : std::vector<std::string>{"FAILED"};
  }
  std::string Error(const std::vector<std::string>& args) {
    return std::string(flags_.Parse(args).status().message());
  }

  FlagSet flags_;
  std::string out_ = "default";
  int workers_ = 7;
  double stall_ = 1;
  double watch_ = 0;
  double loss_ = 0;
  std::string even_;
  bool json_ = false;
  AutoSwitch resume_ = AutoSwitch::kOff;
  std::vector<std::string> set_;
};

TEST_F(FlagsTest, LeavesDefaultsWhereNothingIsGiven) {
  EXPECT_THAT(MustParse({}), ElementsAre());
  EXPECT_EQ(out_, "default");
  EXPECT_EQ(workers_, 7);
}

TEST_F(FlagsTest, ASwitchMayLeaveTheDecisionToTheProgram) {
  EXPECT_THAT(MustParse({"--resume", "job"}), ElementsAre("job"));
  EXPECT_EQ(resume_, AutoSwitch::kOn);
  MustParse({"--resume=auto"});
  EXPECT_EQ(resume_, AutoSwitch::kAuto);
  MustParse({"--resume=false"});
  EXPECT_EQ(resume_, AutoSwitch::kOff);
  EXPECT_EQ(Error({"--resume=maybe"}), "--resume=maybe: takes auto, true or false");
}

TEST_F(FlagsTest, TakesValuesAfterAnEqualsSignOrASpace) {
  EXPECT_THAT(MustParse({"job", "--out=a b", "--workers", "3", "--stall_seconds=0.5", "--loss=0.25"}),
              ElementsAre("job"));
  EXPECT_EQ(out_, "a b");
  EXPECT_EQ(workers_, 3);
  EXPECT_EQ(stall_, 0.5);
  EXPECT_EQ(loss_, 0.25);
}

TEST_F(FlagsTest, ListsTakeEveryOccurrenceInOrderAndKeepLaterEqualsSigns) {
  MustParse({"--set=a=1", "--set", "b.c={x: 1}", "--set=a=2=3"});
  EXPECT_THAT(set_, ElementsAre("a=1", "b.c={x: 1}", "a=2=3"));
}

TEST_F(FlagsTest, ParsedFlagsPassEachValueToTheirFunction) {
  MustParse({"--even=2", "--even", "2"});
  EXPECT_EQ(even_, "22");
  EXPECT_EQ(Error({"--even=3"}), "--even=3: is not 2");
}

TEST_F(FlagsTest, SwitchesDoNotEatTheNextArgument) {
  EXPECT_THAT(MustParse({"--json", "job"}), ElementsAre("job"));
  EXPECT_TRUE(json_);
  MustParse({"--json=false"});
  EXPECT_FALSE(json_);
}

TEST_F(FlagsTest, AFlagWithAnOptionalValueTakesItAfterAnEqualsSignAlone) {
  EXPECT_THAT(MustParse({"--watch", "5"}), ElementsAre("5"));
  EXPECT_EQ(watch_, 2);
  EXPECT_THAT(MustParse({"--watch=0.5", "job"}), ElementsAre("job"));
  EXPECT_EQ(watch_, 0.5);
  EXPECT_EQ(Error({"--watch=0"}), "--watch=0: takes a positive number of seconds");
}

TEST_F(FlagsTest, ANegativeOrDashedValueMayFollowASpace) {
  MustParse({"--set", "-x=1"});
  EXPECT_THAT(set_, ElementsAre("-x=1"));
}

TEST_F(FlagsTest, TwoDashesEndTheFlags) {
  EXPECT_THAT(MustParse({"--json", "--", "--out=x", "y"}), ElementsAre("--out=x", "y"));
  EXPECT_EQ(out_, "default");
}

TEST_F(FlagsTest, DashesAndUnderscoresInNamesAreOne) {
  MustParse({"--stall-seconds=9"});
  EXPECT_EQ(stall_, 9);
}

TEST_F(FlagsTest, HelpIsKnown) {
  MustParse({"--help"});
  EXPECT_EQ(flags_.help(), FlagSet::Help::kLong);
  MustParse({"-h"});
  EXPECT_EQ(flags_.help(), FlagSet::Help::kShort);
}

TEST_F(FlagsTest, AnUnknownFlagIsNamedWithTheNearestOne) {
  EXPECT_EQ(Error({"--worker=2"}), "unknown flag --worker; is it --workers?");
  EXPECT_EQ(Error({"--jsn"}), "unknown flag --jsn; is it --json?");
  EXPECT_EQ(Error({"--frobnicate"}), "unknown flag --frobnicate; --help lists them");
}

TEST_F(FlagsTest, ASwitchIsNegatedByNo) {
  MustParse({"--json", "--no-json"});
  EXPECT_FALSE(json_);
  EXPECT_EQ(Error({"--no-out"}), "unknown flag --no_out; --help lists them");
}

TEST_F(FlagsTest, BadValuesNameFlagValueAndWhatIsAllowed) {
  EXPECT_EQ(Error({"--workers=two"}), "--workers=two: takes a whole number, at least 1");
  EXPECT_EQ(Error({"--workers=0"}), "--workers=0: takes a whole number, at least 1");
  EXPECT_EQ(Error({"--stall_seconds=-1"}), "--stall_seconds=-1: takes a positive number of seconds");
  EXPECT_EQ(Error({"--stall_seconds=nan"}), "--stall_seconds=nan: takes a positive number of seconds");
  EXPECT_EQ(Error({"--loss=-0.1"}), "--loss=-0.1: takes a number, at least 0");
  EXPECT_EQ(Error({"--json=perhaps"}), "--json=perhaps: takes true or false");
  EXPECT_EQ(Error({"--out"}), "--out needs a value: --out=DIR");
}

TEST_F(FlagsTest, DescribesEveryFlag) {
  const std::string text = flags_.Describe(80);
  EXPECT_THAT(text, HasSubstr("  --out=DIR                 Where everything goes.\n"));
  EXPECT_THAT(text, HasSubstr("  --json                    Only JSON.\n"));
  EXPECT_THAT(text, HasSubstr("  --watch[=SECONDS]         Again.\n"));
}

TEST_F(FlagsTest, GroupsHaveHeadingsAndTheShortHelpHasFirstFlagsAndFirstSentences) {
  flags_.BeginGroup("Others");
  int more = 0;
  for (int i = 0; i < 9; ++i)
    flags_.AddInt(absl::StrCat("more", i), "N", 1, &more, "The first sentence. The second sentence.");
  EXPECT_THAT(flags_.Describe(40),
              HasSubstr("\nOthers:\n  --more0=N\n      The first sentence. The second\n      sentence.\n"));
  const std::string text = flags_.DescribeFirst(80);
  EXPECT_THAT(text, ::testing::StartsWith("\nFlags, 10 of "));
  EXPECT_THAT(text, HasSubstr("  --more0=N                 The first sentence.\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 12);
}

class CommandLineTest : public ::testing::Test {
 protected:
  CommandLineTest() {
    line_ = {.name = "catchment pack", .usage = "catchment pack JOB\n", .notes = "\nExit code: 0.\n"};
    line_.argument = {"JOB", "job.textproto --out=out", &job_, [this] { return resume_; }};
    line_.flags.AddRequired("out", "DIR", &out_dir_, "Where shards go.");
    line_.flags.AddSwitch("resume", &resume_, "Resumes.");
    line_.check = [this]() -> absl::Status {
      if (job_ != "bad") return absl::OkStatus();
      return absl::InvalidArgumentError("bad is not a job");
    };
  }

  int Run(const std::vector<std::string>& args, const absl::StatusOr<int>& result = 0) {
    runs_ = 0;
    job_ = out_dir_ = "";
    out_.str("");
    err_.str("");
    return RunCommandLine(&line_, args, &out_, &err_, [&] {
      ++runs_;
      return result;
    });
  }

  CommandLine line_;
  std::string job_;
  std::string out_dir_;
  bool resume_ = false;
  std::ostringstream out_, err_;
  int runs_ = 0;
};

TEST_F(CommandLineTest, RunsWithTheValuesAndReturnsTheExitCodeOfTheRun) {
  EXPECT_EQ(Run({"job", "--out=dir"}, 7), 7);
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(job_, "job");
  EXPECT_EQ(out_dir_, "dir");
  EXPECT_EQ(out_.str() + err_.str(), "");
}

TEST_F(CommandLineTest, ErrorOfTheRunIsPrintedWithTheCommandsName) {
  EXPECT_EQ(Run({"job", "--out=dir"}, absl::NotFoundError("no such file")), kExitFailed);
  EXPECT_EQ(err_.str(), "catchment pack: no such file\n");
}

TEST_F(CommandLineTest, WrongCommandLineIsNotRun) {
  const std::pair<std::vector<std::string>, std::string> kWrong[] = {
      {{"--out=dir"}, "takes one JOB, for example: catchment pack job.textproto --out=out"},
      {{"job", "more", "--out=dir"}, "takes one JOB, but got also more"},
      {{"job"}, "--out=DIR is required"},
      {{"job", "--out="}, "--out=DIR is required"},
      {{"job", "--ouT=dir"}, "unknown flag --ouT; is it --out?"},
      {{"bad", "--out=dir"}, "bad is not a job"},
  };
  for (const auto& [args, message] : kWrong) {
    EXPECT_EQ(Run(args), kExitUsage) << message;
    EXPECT_EQ(err_.str(), "catchment pack: " + message + "\n");
    EXPECT_EQ(runs_, 0) << message;
  }
}

TEST_F(CommandLineTest, FlagsMayMakeTheArgumentUnnecessary) {
  EXPECT_EQ(Run({"--out=dir", "--resume"}), 0);
  EXPECT_EQ(runs_, 1);
}

TEST_F(CommandLineTest, CommandWithoutAnArgumentAcceptsOnlyFlags) {
  line_.argument = {};
  EXPECT_EQ(Run({"--out=dir"}), 0);
  EXPECT_EQ(Run({"job", "--out=dir"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("accepts only flags, but got 'job'"));
}

TEST_F(CommandLineTest, HelpNeedsNothingElseAndListsFlagsBetweenUsageAndNotes) {
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_EQ(runs_, 0);
  EXPECT_THAT(out_.str(), ::testing::StartsWith("catchment pack JOB\n\nFlags:\n  --out=DIR"));
  EXPECT_THAT(out_.str(), HasSubstr("Where shards go. Required.\n"));
  EXPECT_THAT(out_.str(), ::testing::EndsWith("\nExit code: 0.\n"));
}

TEST_F(CommandLineTest, TheShortHelpLeadsToTheLongOne) {
  EXPECT_EQ(Run({"-h"}), 0);
  EXPECT_EQ(out_.str(),
            "catchment pack JOB\n\nExample:\n  catchment pack job.textproto --out=out\n\nFlags:\n"
            "  --out=DIR                 Where shards go.\n  --resume                  Resumes.\n\n"
            "All flags, examples and exit codes: catchment pack --help\n");
}

TEST_F(CommandLineTest, HelpInJsonDescribesFlagsAndArgument) {
  EXPECT_EQ(Run({"--help=json"}), 0);
  EXPECT_EQ(runs_, 0);
  const auto json = nlohmann::json::parse(out_.str());
  EXPECT_EQ(json["name"], "catchment pack");
  EXPECT_EQ(json["argument"], line_.argument.name);
  EXPECT_EQ(json["flags"][0]["name"], "out");
  EXPECT_EQ(json["flags"][0]["value"], "DIR");
  EXPECT_EQ(json["flags"][0]["help"], "Where shards go. Required.");
  EXPECT_EQ(json["flags"][0]["group"], "Flags");
  EXPECT_THAT(std::string(json["usage"]), ::testing::StartsWith("catchment pack JOB"));
}

}  // namespace
}  // namespace catchment
