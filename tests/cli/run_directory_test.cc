#include "cli/local/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/job/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RunDirectoryTest : public ::testing::Test {
 protected:
  RunDirectoryTest()
      : path_(::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  void Put(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(path_ + "/" + name).parent_path());
    ASSERT_TRUE(WriteFile(path_ + "/" + name, text).ok());
  }
  bool Has(const std::string& name) const { return fs::exists(path_ + "/" + name); }
  std::string Error(StartMode mode) const {
    return std::string(RunDirectory::Open(path_, mode).status().message());
  }

  const std::string path_;
};

TEST_F(RunDirectoryTest, IsCreatedWithItsLogs) {
  fs::remove_all(path_);
  const auto directory = RunDirectory::Open(path_ + "/deep/er", StartMode::kFresh);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_TRUE(fs::is_directory(directory->logs()));
}

TEST_F(RunDirectoryTest, FilesThatAreNamedPipesAreNeitherReadNorWritten) {
  const std::string pipe = path_ + "/summary.json";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ReadSummary(pipe).status().message(), pipe + ": is not a regular file");
  EXPECT_EQ(WriteFile(pipe, "{}").message(), pipe + ": is not a regular file");
}

TEST_F(RunDirectoryTest, FilesElsewhereAreNotWrittenThroughLinks) {
  Put("mine", "mine");
  const std::string link = path_ + "/compare.json.new";
  fs::create_symlink(path_ + "/mine", link);
  EXPECT_EQ(WriteFile(link, "{}").message(), link + ": is not a regular file");
  EXPECT_EQ(ReadTextFile(path_ + "/mine").value_or(""), "mine");
  EXPECT_TRUE(WriteFile(link, "{}", FileNamedBy::kUser).ok()) << "the user's own link";
}

TEST_F(RunDirectoryTest, ARunWithoutACheckpointIsReplaced) {
  Put("metrics.jsonl", "old");
  Put("model-best.safetensors", "old");
  Put("logs/worker-0.log", "old");
  Put("checkpoints/checkpoint-1/shard-0-of-1.safetensors", "without a manifest");
  Put("summary.json", "{\"phase\": \"FAILED\"}");
  Put("notes.txt", "the user's");
  ASSERT_TRUE(RunDirectory::Open(path_, StartMode::kFresh).ok());
  EXPECT_FALSE(Has("metrics.jsonl") || Has("logs/worker-0.log") || Has("checkpoints") || Has("summary.json"));
  EXPECT_FALSE(Has("model-best.safetensors")) << "it would be taken for this run's";
  EXPECT_TRUE(Has("notes.txt"));
}

TEST_F(RunDirectoryTest, AFinishedRunIsNotOverwrittenUnasked) {
  Put("summary.json", "{\"phase\": \"DONE\"}");
  Put("model.safetensors", "precious");
  EXPECT_THAT(Error(StartMode::kFresh),
              HasSubstr("contains the result of a finished run: continue with --resume"));
  EXPECT_TRUE(Has("model.safetensors"));
}

TEST_F(RunDirectoryTest, CheckpointsAreNotOverwrittenUnasked) {
  Put("checkpoints/checkpoint-1/manifest.textproto", "");
  EXPECT_THAT(Error(StartMode::kFresh), HasSubstr("contains the checkpoints of an unfinished run"));
  EXPECT_TRUE(Has("checkpoints/checkpoint-1/manifest.textproto"));
}

TEST_F(RunDirectoryTest, OverwriteDeletesAFinishedRun) {
  Put("summary.json", "{\"phase\": \"DONE\"}");
  Put("model.safetensors", "old");
  Put("checkpoints/checkpoint-1/manifest.textproto", "");
  const auto directory = RunDirectory::Open(path_, StartMode::kOverwrite);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_FALSE(Has("summary.json") || Has("model.safetensors") || directory->HasCheckpoint());
}

TEST_F(RunDirectoryTest, ResumingKeepsCheckpointsMetricsAndLogsAndDropsTheOldResult) {
  Put("checkpoints/checkpoint-1/manifest.textproto", "");
  Put("metrics.jsonl", "kept");
  Put("model-best.safetensors", "kept");
  Put("logs/worker-0.log", "kept");
  Put("summary.json", "{\"phase\": \"STOPPED\"}");
  const auto directory = RunDirectory::Open(path_, StartMode::kResume);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_TRUE(directory->HasCheckpoint() && Has("metrics.jsonl") && Has("logs/worker-0.log"));
  EXPECT_TRUE(Has("model-best.safetensors"));
  EXPECT_FALSE(Has("summary.json"));
}

TEST_F(RunDirectoryTest, ResumingNeedsACompleteCheckpoint) {
  Put("checkpoints/checkpoint-1/shard-0-of-1.safetensors", "without a manifest");
  EXPECT_THAT(Error(StartMode::kResume),
              HasSubstr("there is no complete checkpoint in " + path_ + "/checkpoints"));
}

TEST_F(RunDirectoryTest, OnlyOneCommandAtATimeUsesIt) {
  {
    const auto first = RunDirectory::Open(path_, StartMode::kFresh);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_THAT(Error(StartMode::kFresh),
                AllOf(HasSubstr("is in use by another running `catchment train` on host "),
                      HasSubstr(absl::StrCat(" with pid ", getpid(), ": wait until it has ended"))));
  }
  EXPECT_TRUE(RunDirectory::Open(path_, StartMode::kFresh).ok());
}

TEST_F(RunDirectoryTest, ReadersOfItCannotKeepItFromBeingUsed) {
  const int reader = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(reader, LOCK_EX | LOCK_NB), 0);
  const auto directory = RunDirectory::Open(path_, StartMode::kFresh);
  EXPECT_TRUE(directory.ok()) << directory.status();
  close(reader);
}

TEST_F(RunDirectoryTest, AFileInItsPlaceIsNamed) {
  Put("file", "");
  EXPECT_THAT(std::string(RunDirectory::Open(path_ + "/file", StartMode::kFresh).status().message()),
              HasSubstr(path_ + "/file"));
}

TEST_F(RunDirectoryTest, SummaryThatIsNotAnObjectIsNamed) {
  const std::string file = path_ + "/summary.json";
  EXPECT_THAT(std::string(ReadSummary(file).status().message()), HasSubstr(file));
  for (const char* text : {"{\"epochs\": ", "[1]"}) {
    Put("summary.json", text);
    EXPECT_THAT(std::string(ReadSummary(file).status().message()), HasSubstr(file + " is not a JSON object"));
  }
  Put("summary.json", "{\"epochs\": 2}");
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(file);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->value("epochs", 0), 2);
}

}  // namespace
}  // namespace catchment
