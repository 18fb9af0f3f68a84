#include "server/host/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_file.h"

namespace catchment {
namespace {

using testing::HasSubstr;

std::string Directory(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

std::unique_ptr<PendingSnapshot> SnapshotOf(uint64_t number) {
  ShardSnapshot snapshot;
  snapshot.state.set_checkpoint(number);
  snapshot.state.set_begin(0);
  snapshot.state.set_end(4);
  snapshot.state.set_block_size(4);
  snapshot.state.add_blocks()->set_version(number);
  snapshot.state.set_optimizer("SGD");
  v1::Watermark* const watermark = snapshot.state.add_watermarks();
  watermark->set_incarnation(5);
  watermark->set_settled_steps(10 * number);
  watermark->set_begun_steps(10 * number + 1);
  snapshot.weights = {1, 2, 3, static_cast<float>(number)};
  snapshot.states = {{5, 6, 7, 8}};
  snapshot.state_names = {"momentum_buffer"};
  return std::make_unique<PendingSnapshot>(std::move(snapshot));
}

v1::ShardReport ReportOf(const CheckpointWriter& writer) {
  v1::ShardReport report;
  writer.Report(&report);
  return report;
}

TEST(CheckpointWriterTest, DestructorWritesWhatStillWaits) {
  const std::string directory = Directory("waits");
  {
    CheckpointWriter writer(directory, 0, 1, 0);
    writer.Write(SnapshotOf(7));
  }
  const absl::StatusOr<ShardFile> saved =
      OpenShard(CheckpointDirectory(directory, 7) + "/" + ShardFileName(0, 1));
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->state.checkpoint(), 7u);
  EXPECT_EQ(saved->state.blocks(0).version(), 7u);
}

TEST(CheckpointWriterTest, ReportsWhatIsSaved) {
  CheckpointWriter writer(Directory("reports"), 1, 2, 0);
  EXPECT_EQ(ReportOf(writer).saved_size(), 0);
  for (uint64_t number : {3, 6, 9}) {
    writer.Write(SnapshotOf(number));
    while (ReportOf(writer).saved_size() < static_cast<int>(number / 3)) std::this_thread::yield();
  }
  const v1::ShardReport report = ReportOf(writer);
  for (int i : {1, 2}) {
    const uint64_t number = 3 * (i + 1);
    EXPECT_EQ(report.saved(i).checkpoint(), number);
    EXPECT_EQ(report.saved(i).version(), number);
    EXPECT_EQ(report.saved(i).file(), "shard-1-of-2.safetensors");
    // Another shard may save the checkpoint before the last one later.
    ASSERT_EQ(report.saved(i).settled_steps_size(), 1);
    EXPECT_EQ(report.saved(i).incarnations(0), 5u);
    EXPECT_EQ(report.saved(i).settled_steps(0), 10 * number);
    EXPECT_EQ(report.saved(i).begun_steps(0), 10 * number + 1);
  }
  EXPECT_EQ(report.saved(0).incarnations_size(), 0) << "no shard saves it later";
  EXPECT_EQ(report.save_error(), "");
}

TEST(CheckpointWriterTest, WithoutADirectoryAllSnapshotsCountAsSaved) {
  CheckpointWriter writer("", 0, 1, 0);
  writer.Write(SnapshotOf(3));
  while (ReportOf(writer).saved_size() < 1) std::this_thread::yield();
  EXPECT_EQ(ReportOf(writer).saved(0).checkpoint(), 3u);
  EXPECT_EQ(ReportOf(writer).saved(0).version(), 3u);
}

// Else a master whose budget was spent before would wait for ever for the last checkpoint.
TEST(CheckpointWriterTest, CheckpointThatTheShardBeganWithIsSavedAlready) {
  CheckpointWriter writer(Directory("resumed"), 0, 1, 12);
  ASSERT_EQ(ReportOf(writer).saved_size(), 1);
  EXPECT_EQ(ReportOf(writer).saved(0).checkpoint(), 12u);
}

TEST(CheckpointWriterTest, SaysWhyItCannotSaveUntilItCan) {
  const std::string directory = Directory("blocked");
  std::ofstream(directory) << "a file where the directory should be";
  CheckpointWriter writer(directory, 0, 1, 0);
  writer.Write(SnapshotOf(1));
  while (ReportOf(writer).save_error().empty()) std::this_thread::yield();
  EXPECT_THAT(ReportOf(writer).save_error(), HasSubstr(directory));
  EXPECT_EQ(ReportOf(writer).saved_size(), 0);
  ASSERT_EQ(std::remove(directory.c_str()), 0);
  writer.Write(SnapshotOf(2));
  while (ReportOf(writer).saved_size() < 1) std::this_thread::yield();
  EXPECT_EQ(ReportOf(writer).save_error(), "");
}

// The last checkpoint of a job has no successor: given up after a passing error, its weights would be lost.
TEST(CheckpointWriterTest, TriesAgainUntilItCanSave) {
  const std::string directory = Directory("blocked_for_a_while");
  std::ofstream(directory) << "a file where the directory should be";
  CheckpointWriter writer(directory, 0, 1, 0);
  writer.Write(SnapshotOf(9));
  while (ReportOf(writer).save_error().empty()) std::this_thread::yield();
  ASSERT_EQ(std::remove(directory.c_str()), 0);
  while (ReportOf(writer).saved_size() < 1) std::this_thread::yield();
  EXPECT_EQ(ReportOf(writer).saved(0).checkpoint(), 9u);
  EXPECT_EQ(ReportOf(writer).save_error(), "");
}

}  // namespace
}  // namespace catchment
