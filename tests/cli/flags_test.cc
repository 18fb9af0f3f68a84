#include "cli/flags.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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
    flags_.AddSwitch("json", &json_, "Only JSON.");
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
  bool json_ = false;
  std::vector<std::string> set_;
};

TEST_F(FlagsTest, LeavesDefaultsWhereNothingIsGiven) {
  EXPECT_THAT(MustParse({}), ElementsAre());
  EXPECT_EQ(out_, "default");
  EXPECT_EQ(workers_, 7);
  EXPECT_FALSE(flags_.IsSet("workers"));
}

TEST_F(FlagsTest, TakesValuesAfterAnEqualsSignOrASpace) {
  EXPECT_THAT(MustParse({"job", "--out=a b", "--workers", "3", "--stall_seconds=0.5"}), ElementsAre("job"));
  EXPECT_EQ(out_, "a b");
  EXPECT_EQ(workers_, 3);
  EXPECT_EQ(stall_, 0.5);
  EXPECT_TRUE(flags_.IsSet("workers"));
}

TEST_F(FlagsTest, ListsTakeEveryOccurrenceInOrderAndKeepLaterEqualsSigns) {
  MustParse({"--set=a=1", "--set", "b.c={x: 1}", "--set=a=2=3"});
  EXPECT_THAT(set_, ElementsAre("a=1", "b.c={x: 1}", "a=2=3"));
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
  EXPECT_TRUE(flags_.help());
}

TEST_F(FlagsTest, AnUnknownFlagIsNamedWithTheNearestOne) {
  EXPECT_EQ(Error({"--worker=2"}), "unknown flag --worker; is it --workers?");
  EXPECT_EQ(Error({"--jsn"}), "unknown flag --jsn; is it --json?");
  EXPECT_EQ(Error({"--frobnicate"}), "unknown flag --frobnicate; --help lists them");
}

TEST_F(FlagsTest, BadValuesNameFlagValueAndWhatIsAllowed) {
  EXPECT_EQ(Error({"--workers=two"}), "--workers=two: takes a whole number, at least 1");
  EXPECT_EQ(Error({"--workers=0"}), "--workers=0: takes a whole number, at least 1");
  EXPECT_EQ(Error({"--stall_seconds=-1"}), "--stall_seconds=-1: takes a positive number of seconds");
  EXPECT_EQ(Error({"--stall_seconds=nan"}), "--stall_seconds=nan: takes a positive number of seconds");
  EXPECT_EQ(Error({"--json=perhaps"}), "--json=perhaps: takes true or false");
  EXPECT_EQ(Error({"--out"}), "--out needs a value: --out=DIR");
}

TEST_F(FlagsTest, DescribesEveryFlag) {
  const std::string text = flags_.Describe();
  EXPECT_THAT(text, HasSubstr("  --out=DIR                 Where everything goes.\n"));
  EXPECT_THAT(text, HasSubstr("  --json                    Only JSON.\n"));
  EXPECT_THAT(text, HasSubstr("  --watch[=SECONDS]         Again.\n"));
}

}  // namespace
}  // namespace catchment
