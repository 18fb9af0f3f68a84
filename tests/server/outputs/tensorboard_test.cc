#include "server/outputs/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using Json = TensorBoard::Json;

std::string Directory(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

// Returns the events of all files; event_file_test checks framing and checksums.
std::vector<tensorboard::Event> Events(const std::string& directory) {
  std::vector<tensorboard::Event> events;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    for (size_t at = 0; at < bytes.size();) {
      uint64_t length;
      std::memcpy(&length, bytes.data() + at, sizeof(length));
      EXPECT_TRUE(events.emplace_back().ParseFromString(bytes.substr(at + 12, length)));
      at += 16 + length;
    }
  }
  return events;
}

Json Line(uint64_t samples) {
  Json line = {{"samples", samples},           {"train_loss", 0.5},
               {"test_loss", nullptr},         {"test_accuracy", nullptr},
               {"tested_at_samples", nullptr}, {"worker_rates", Json::array()},
               {"program", Json::object()}};
  return line;
}

// "tag=value at step" of all scalars.
std::vector<std::string> Scalars(const std::string& directory) {
  std::vector<std::string> scalars;
  for (const tensorboard::Event& event : Events(directory)) {
    for (const tensorboard::Value& value : event.summary().value()) {
      scalars.push_back(absl::StrCat(value.tag(), "=", value.simple_value(), " at ", event.step()));
    }
  }
  return scalars;
}

TEST(TensorBoardTest, AFileBeginsWithItsVersionAndItsStart) {
  const std::string directory = Directory("start");
  TensorBoard board(directory);
  EXPECT_FALSE(std::filesystem::exists(directory)) << "there is nothing to say yet";
  ASSERT_TRUE(board.Write(Line(640), 1234.5).ok());
  const std::vector<tensorboard::Event> events = Events(directory);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].session().status(), tensorboard::Session::START);
  EXPECT_EQ(events[1].step(), 640);
  EXPECT_EQ(events[2].wall_time(), 1234.5);
  EXPECT_EQ(events[2].step(), 640);
}

TEST(TensorBoardTest, WhatIsNotKnownIsLeftOut) {
  TensorBoard board(Directory("unknown"));
  Json line = Line(64);
  line["staleness_p50"] = NAN;
  line["bytes_pushed"] = 4096;
  line["program"] = {{"norm", 1.5}, {"rate", NAN}};
  line["worker_rates"] = {{{"worker", 3}, {"samples_per_second", 100}, {"push_share", nullptr}}};
  ASSERT_TRUE(board.Write(line, 1234).ok());
  EXPECT_THAT(Scalars(Directory("unknown")),
              ElementsAre("train/loss=0.5 at 64", "bytes/pushed=4096 at 64", "program/norm=1.5 at 64",
                          "worker_3/samples_per_second=100 at 64"));
}

TEST(TensorBoardTest, AnEvaluationIsWrittenOnceAtTheSamplesOfItsWeights) {
  TensorBoard board(Directory("tests"));
  for (const auto& [samples, tested, loss] : std::vector<std::tuple<int, int, double>>{
           {100, 80, 0.25}, {200, 80, 0.25}, {300, 280, NAN}, {400, 280, NAN}}) {
    Json line = Line(samples);
    line["train_loss"] = nullptr;
    line["tested_at_samples"] = tested;
    line["test_loss"] = loss;
    line["test_accuracy"] = 0.5;
    ASSERT_TRUE(board.Write(line, 1234).ok());
  }
  EXPECT_THAT(Scalars(Directory("tests")),
              ElementsAre("test/loss=0.25 at 80", "test/accuracy=0.5 at 80", "test/accuracy=0.5 at 280"));
}

// A file is in the place of the directory.
TEST(TensorBoardTest, ErrorIsReturnedOnce) {
  const std::string directory = Directory("in_the_way");
  std::ofstream(directory) << "x";
  TensorBoard board(directory);
  const absl::Status status = board.Write(Line(1), 1234);
  EXPECT_THAT(status.ToString(), testing::HasSubstr(directory));
  EXPECT_TRUE(board.Write(Line(2), 1235).ok()) << "said already";
  std::filesystem::remove(directory);
  EXPECT_TRUE(board.Write(Line(3), 1236).ok());
  EXPECT_THAT(Scalars(directory), ElementsAre("train/loss=0.5 at 3"));
  EXPECT_EQ(Events(directory)[0].wall_time(), 1236);
}

// 0 three times, 1 once, 5 twice.
TEST(TensorBoardTest, HistogramHasABucketForEachValue) {
  const tensorboard::Histogram histogram = HistogramOf({{0, 3}, {1, 1}, {5, 2}});
  EXPECT_THAT(histogram.bucket_limit(), ElementsAre(0.5, 1.5, 4.5, 5.5));
  EXPECT_THAT(histogram.bucket(), ElementsAre(3, 1, 0, 2));
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_EQ(histogram.max(), 5);
  EXPECT_EQ(histogram.num(), 6);
  EXPECT_EQ(histogram.sum(), 11);
  EXPECT_EQ(histogram.sum_squares(), 51);
  EXPECT_EQ(HistogramOf({{7, 1}}).min(), 7);
}

}  // namespace
}  // namespace catchment
