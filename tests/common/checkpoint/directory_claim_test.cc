#include "common/checkpoint/directory_claim.h"

#include <filesystem>

#include "common/checkpoint/manifest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint/test_files.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

class DirectoryClaimTest : public ::testing::Test {
 protected:
  void Put(const std::string& name) const { SetFileBytes(path_ + "/" + name, "the user's"); }
  std::string Error(const Names& names) const { return std::string(ClaimNames(path_, names).message()); }

  const std::string path_ = FreshDirectory();
};

TEST_F(DirectoryClaimTest, RemembersNamesForLaterRuns) {
  ASSERT_EQ(Error({"logs", "metrics.jsonl"}), "");
  Put("metrics.jsonl");
  fs::create_directories(path_ + "/logs");
  Put("logs/server-0.log");
  EXPECT_EQ(Error({"logs", "metrics.jsonl", "summary.json"}), "");
  EXPECT_THAT(*ClaimedNames(path_), ElementsAre("logs", "metrics.jsonl", "summary.json"));
}

TEST_F(DirectoryClaimTest, RefusesWhatIsThereAndRecordsNothing) {
  Put("summary.json");
  EXPECT_THAT(Error({"metrics.jsonl", "summary.json"}),
              AllOf(HasSubstr(path_ + "/summary.json was not written"),
                    HasSubstr("choose another --out, or move it")));
  EXPECT_THAT(*ClaimedNames(path_), IsEmpty());
  EXPECT_EQ(Error({"metrics.jsonl"}), "") << "other names are free";
  Put("metrics.jsonl");
  EXPECT_THAT(Error({"metrics.jsonl", "summary.json"}), HasSubstr("summary.json"));
}

TEST_F(DirectoryClaimTest, LinksAndFullDirectoriesCountAsFilesAndEmptyDirectoriesDoNot) {
  fs::create_directories(path_ + "/empty");
  fs::create_directories(path_ + "/full/folder");
  fs::create_symlink(path_ + "/nowhere", path_ + "/dangling");
  fs::create_directory_symlink(path_ + "/full", path_ + "/link");
  EXPECT_EQ(Error({"empty"}), "");
  for (const char* name : {"full", "dangling", "link"}) EXPECT_THAT(Error({name}), HasSubstr(name)) << name;
}

TEST_F(DirectoryClaimTest, AFileOfAnotherProgramIsNotARecord) {
  Put("catchment.claim");
  EXPECT_THAT(Error({"logs"}), HasSubstr(path_ + "/catchment.claim was not written by Catchment"));
  EXPECT_EQ(FileBytes(path_ + "/catchment.claim"), "the user's");
}

TEST_F(DirectoryClaimTest, FilesOfAnEarlierVersionAreProvenByTheRecordOfItsJob) {
  Put("metrics.jsonl");
  EXPECT_EQ(ProvenByRun(path_ + "/checkpoints"), Unclaimed::kForeign);
  ASSERT_TRUE(WriteRunRecord(path_ + "/checkpoints", v1::RunRecord()).ok());
  EXPECT_EQ(ProvenByRun(path_ + "/checkpoints"), Unclaimed::kOurs);
  EXPECT_TRUE(ClaimNames(path_, {"metrics.jsonl"}, Unclaimed::kOurs).ok());
  EXPECT_EQ(Error({"metrics.jsonl"}), "");
}

}  // namespace
}  // namespace catchment
