#include "server/outputs/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/crc32c.h"

namespace catchment {
namespace {

std::string Directory(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

tensorboard::Event StepOf(int64_t step) {
  tensorboard::Event event;
  event.set_step(step);
  return event;
}

// RFC 3720, appendix B.4; and the check value of the algorithm's catalogue entry.
TEST(Crc32cTest, AgreesWithTheStandard) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c(""), 0u);
}

// Made by tests/cluster/event_files.py: masked(crc32c(head)), masked(crc32c(b"abc")).
TEST(EventFileTest, RecordsAreFramedWithMaskedChecksums) {
  const std::string expected(
      "\x03\0\0\0\0\0\0\0"
      "\xb0\x99\x49\x0e"
      "abc"
      "\x6e\x57\xf1\x21",
      19);
  EXPECT_EQ(FrameRecord("abc"), expected);
}

TEST(EventFileTest, BeginsWithItsVersionAndTakesNoNameTwice) {
  const auto first = EventFile::Create(Directory("events/deep"), 1234.5);
  const auto second = EventFile::Create(Directory("events/deep"), 1234.75);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_THAT((*first)->path(), testing::HasSubstr("/events.out.tfevents.1234."));
  EXPECT_THAT((*second)->path(), testing::HasSubstr("/events.out.tfevents.1235."));
  tensorboard::Event version;
  version.set_wall_time(1234.5);
  version.set_file_version("brain.Event:2");
  EXPECT_EQ(Read((*first)->path()), FrameRecord(version.SerializeAsString()));
  ASSERT_TRUE((*first)->Write(StepOf(7)).ok());
  EXPECT_EQ(Read((*first)->path()),
            FrameRecord(version.SerializeAsString()) + FrameRecord(StepOf(7).SerializeAsString()));
}

// A file that may not grow takes a part of a record, as a full disk does.
TEST(EventFileTest, NothingStaysOfARecordThatDoesNotFit) {
  const auto file = EventFile::Create(Directory("full"), 1234);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string before = Read((*file)->path());
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlim_t was = limit.rlim_cur;
  limit.rlim_cur = before.size() + 5;
  setrlimit(RLIMIT_FSIZE, &limit);
  const absl::Status status = (*file)->Write(StepOf(7));
  limit.rlim_cur = was;
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr((*file)->path()));
  EXPECT_EQ(Read((*file)->path()), before);
  ASSERT_TRUE((*file)->Write(StepOf(8)).ok()) << "when there is room again";
  EXPECT_EQ(Read((*file)->path()), before + FrameRecord(StepOf(8).SerializeAsString()));
}

}  // namespace
}  // namespace catchment
