#include "cli/base/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/directory_lock.h"
#include "common/checkpoint/manifest.h"
#include "common/job/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
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
  // As an earlier run does when it begins.
  void Claim() const { ASSERT_EQ(Error(StartMode::kFresh), ""); }
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    return names;
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

// Files of other programs and of the user with each of the names that a run writes.
TEST_F(RunDirectoryTest, FilesOfOthersWithItsNamesAreNamedAndKeptInEveryMode) {
  for (const char* name :
       {"job.textproto", "initial.safetensors", "program.txt", "logs/notes.txt", "logs/server-0.log",
        "metrics.jsonl", "tensorboard/events.out.tfevents.1.node0", "summary.json", "model.safetensors",
        "model-best.safetensors", "master.address", "master.run", "checkpoints/epoch3.pt",
        "checkpoints/checkpoint-500/model.safetensors", "command.lock", "master.lock", "catchment.claim"}) {
    fs::remove_all(path_);
    Put(name, "the user's own text");
    const std::string first = std::string(name).substr(0, std::string(name).find('/'));
    for (const StartMode mode : {StartMode::kFresh, StartMode::kOverwrite, StartMode::kResume}) {
      EXPECT_THAT(Error(mode), AllOf(HasSubstr(path_ + "/" + first), HasSubstr("not written by Catchment")))
          << name;
      EXPECT_EQ(ReadTextFile(path_ + "/" + name).value_or(""), "the user's own text") << name;
    }
    EXPECT_THAT(Entries(), ElementsAre(first)) << "a refused command leaves nothing behind";
  }
}

TEST_F(RunDirectoryTest, OtherFilesBesideItsNamesDoNotMatter) {
  Put("train.csv", "1,2");
  fs::create_directories(path_ + "/checkpoints");  // empty
  for (const StartMode mode : {StartMode::kFresh, StartMode::kOverwrite})
    EXPECT_EQ(Error(mode), "") << "there is nothing to lose";
  EXPECT_TRUE(Has("train.csv"));
}

TEST_F(RunDirectoryTest, ARunWithoutACheckpointIsReplacedAndFilesOfOthersRemain) {
  Claim();
  Put("metrics.jsonl", "old");
  Put("model-best.safetensors", "old");
  Put("logs/worker-0.log", "old");
  Put("tensorboard/events.out.tfevents.1.node0", "old");
  Put("checkpoints/checkpoint-1/shard-0-of-1.safetensors", "without a manifest");
  Put("summary.json", "{\"phase\": \"FAILED\"}");
  const std::vector<std::string> others = {"notes.txt",
                                           "logs/notes.txt",
                                           "tensorboard/plan.md",
                                           "checkpoints/epoch3.pt",
                                           "checkpoints/checkpoint-1/optimizer.pt",
                                           "checkpoints/checkpoint-500/model.safetensors"};
  for (const std::string& other : others) Put(other, "the user's");
  ASSERT_EQ(Error(StartMode::kFresh), "");
  for (const char* old : {"metrics.jsonl", "logs/worker-0.log", "tensorboard/events.out.tfevents.1.node0",
                          "checkpoints/checkpoint-1/shard-0-of-1.safetensors", "summary.json"})
    EXPECT_FALSE(Has(old)) << old;
  EXPECT_FALSE(Has("model-best.safetensors")) << "it would be taken for this run's";
  for (const std::string& other : others) EXPECT_TRUE(Has(other)) << other;
}

TEST_F(RunDirectoryTest, ARunOfAnEarlierVersionIsRecognizedByItsRecord) {
  Put("metrics.jsonl", "old");
  Put("logs/worker-0.log", "old");
  ASSERT_TRUE(WriteRunRecord(path_ + "/checkpoints", v1::RunRecord()).ok());
  Put("logs/notes.txt", "the user's");
  ASSERT_EQ(Error(StartMode::kOverwrite), "");
  EXPECT_FALSE(Has("metrics.jsonl") || Has("logs/worker-0.log") || Has("checkpoints"));
  EXPECT_TRUE(Has("logs/notes.txt"));
}

TEST_F(RunDirectoryTest, NothingIsDeletedThroughALink) {
  Claim();
  const std::string elsewhere = path_ + "-elsewhere";
  fs::remove_all(elsewhere);
  fs::create_directories(elsewhere);
  ASSERT_TRUE(WriteFile(elsewhere + "/server-0.log", "another run's").ok());
  Put("metrics.jsonl", "old");
  fs::remove_all(path_ + "/logs");
  fs::create_directory_symlink(elsewhere, path_ + "/logs");
  EXPECT_THAT(Error(StartMode::kOverwrite), HasSubstr(path_ + "/logs is a symbolic link"));
  EXPECT_TRUE(fs::exists(elsewhere + "/server-0.log") && Has("metrics.jsonl"));
}

TEST_F(RunDirectoryTest, AFinishedRunIsNotOverwrittenUnasked) {
  Claim();
  Put("summary.json", "{\"phase\": \"DONE\"}");
  Put("model.safetensors", "precious");
  EXPECT_THAT(Error(StartMode::kFresh),
              HasSubstr("contains the result of a finished run: continue with --resume"));
  EXPECT_TRUE(Has("model.safetensors"));
}

TEST_F(RunDirectoryTest, CheckpointsAreNotOverwrittenUnasked) {
  Claim();
  Put("checkpoints/checkpoint-1/manifest.textproto", "");
  EXPECT_THAT(Error(StartMode::kFresh), HasSubstr("contains the checkpoints of an unfinished run"));
  EXPECT_TRUE(Has("checkpoints/checkpoint-1/manifest.textproto"));
}

TEST_F(RunDirectoryTest, OverwriteDeletesAFinishedRun) {
  Claim();
  Put("summary.json", "{\"phase\": \"DONE\"}");
  Put("model.safetensors", "old");
  Put("checkpoints/checkpoint-1/manifest.textproto", "");
  Put("checkpoints/checkpoint-2.unusable/manifest.textproto", "");
  const auto directory = RunDirectory::Open(path_, StartMode::kOverwrite);
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_FALSE(Has("summary.json") || Has("model.safetensors") || Has("checkpoints"));
}

TEST_F(RunDirectoryTest, ARunningMasterKeepsItsFiles) {
  Claim();
  Put("logs/server-0.log", "its log");
  const absl::StatusOr<DirectoryLock> master = DirectoryLock::Take(path_);
  ASSERT_TRUE(master.ok());
  EXPECT_THAT(Error(StartMode::kOverwrite), HasSubstr("is in use by another master"));
  EXPECT_TRUE(Has("logs/server-0.log"));
}

TEST_F(RunDirectoryTest, AJobThatIsTheSameIsNotWrittenAgain) {
  const absl::StatusOr<RunDirectory> directory = RunDirectory::Open(path_, StartMode::kFresh);
  v1::Job job;
  job.set_name("a");
  ASSERT_TRUE(directory.ok() && directory->WriteJob(job).ok());
  const auto written = fs::last_write_time(directory->job());
  EXPECT_TRUE(directory->WriteJob(job).ok());
  EXPECT_EQ(fs::last_write_time(directory->job()), written);
}

TEST_F(RunDirectoryTest, ResumingKeepsCheckpointsMetricsAndLogsAndDropsTheOldResult) {
  Claim();
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
  Claim();
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
