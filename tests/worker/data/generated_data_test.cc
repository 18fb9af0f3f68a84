// Events and images that the program draws.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

constexpr int kSteps = 50, kFeatures = 19, kCharge = 9;

v1::GeneratedEvents EventOptions(uint32_t train, uint64_t seed = 1) {
  v1::GeneratedEvents options;
  options.set_train_samples(train);
  options.set_test_samples(5);
  options.set_seed(seed);
  return options;
}

std::vector<float> ValuesOf(const Dataset& data, int64_t i) {
  std::vector<float> values(data.input_shape().size());
  data.CopyInput(i, values.data());
  return values;
}

// Particles have an energy; after the last there are zeros.
int ParticlesIn(const std::vector<float>& event) {
  int particles = 0;
  while (particles < kSteps && event[particles * kFeatures + 7] != 0) ++particles;
  return particles;
}

TEST(GeneratedEvents, AreSequencesWithZerosBehind) {
  const DataSets data = GenerateEvents(EventOptions(300));
  EXPECT_EQ(data.train.input_shape(), SampleShape::Sequence(kSteps, kFeatures));
  EXPECT_EQ(data.train.num_classes(), 3);
  EXPECT_EQ(data.train.size(), 300);
  EXPECT_EQ(data.test.size(), 5);
  int classes[3] = {};
  for (int64_t i = 0; i < 300; ++i) {
    ++classes[data.train.label(i)];
    const std::vector<float> event = ValuesOf(data.train, i);
    const int particles = ParticlesIn(event);
    EXPECT_GE(particles, 30);
    for (size_t k = particles * kFeatures; k < event.size(); ++k) ASSERT_EQ(event[k], 0);
    for (float value : event) ASSERT_LT(std::fabs(value), 20);
  }
  for (int count : classes) EXPECT_NEAR(count, 100, 5 * 8.2);
}

TEST(GeneratedEvents, SampleIsAFunctionOfSeedPartAndIndex) {
  const DataSets small = GenerateEvents(EventOptions(3)), large = GenerateEvents(EventOptions(9)),
                 other = GenerateEvents(EventOptions(3, 2));
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ValuesOf(small.train, i), ValuesOf(large.train, i));
    EXPECT_EQ(small.train.label(i), large.train.label(i));
    EXPECT_NE(ValuesOf(small.train, i), ValuesOf(other.train, i));
    EXPECT_NE(ValuesOf(small.train, i), ValuesOf(small.test, i));
  }
}

// For each class: how often a charge follows from the previous one by the rule of each class, and the
// charges' mean at each place.
TEST(GeneratedEvents, OnlyHowChargesFollowTellsClassesApart) {
  const DataSets data = GenerateEvents(EventOptions(3000));
  double follows[3][3] = {}, pairs[3] = {}, charge[3][20] = {}, events[3] = {};
  for (int64_t i = 0; i < data.train.size(); ++i) {
    const int label = data.train.label(i);
    const std::vector<float> event = ValuesOf(data.train, i);
    const auto state = [&](int t) { return static_cast<int>(event[t * kFeatures + kCharge]) + 1; };
    ++events[label];
    for (int t = 0; t < 20; ++t) charge[label][t] += state(t) - 1;
    for (int t = 1; t < ParticlesIn(event); ++t, ++pairs[label])
      ++follows[label][(state(t) - state(t - 1) + 3) % 3];
  }
  for (int label = 0; label < 3; ++label) {
    for (int rule = 0; rule < 3; ++rule) {
      EXPECT_NEAR(follows[label][rule] / pairs[label], rule == label ? 0.8 + 0.2 / 3 : 0.2 / 3, 0.005)
          << label << rule;
    }
    for (double sum : charge[label]) EXPECT_NEAR(sum / events[label], 0, 5 * 0.82 / std::sqrt(events[label]));
  }
}

v1::GeneratedImages ImageOptions() {
  v1::GeneratedImages options;
  options.set_train_samples(200);
  options.set_test_samples(3);
  options.set_seed(1);
  options.set_size(16);
  options.set_classes(6);
  return options;
}

TEST(GeneratedImages, HaveTheirClasssGrating) {
  const DataSets data = GenerateImages(ImageOptions());
  EXPECT_EQ(data.train.input_shape(), (SampleShape{3, 16, 16}));
  EXPECT_EQ(data.train.num_classes(), 6);
  int right = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const std::vector<float> image = ValuesOf(data.train, i);
    // The class whose wave is the strongest in the sum of the channels: 3 x 3 frequencies.
    double best = 0;
    int found = -1;
    for (int c = 0; c < 6; ++c) {
      double real = 0, imaginary = 0;
      for (int p = 0; p < 256; ++p) {
        const double value = image[p] + image[256 + p] + image[512 + p];
        const double angle = 6.283185307179586 * ((1 + c % 3) * (p % 16) + c / 3 * (p / 16)) / 16;
        real += value * std::cos(angle);
        imaginary += value * std::sin(angle);
      }
      if (std::hypot(real, imaginary) > best) {
        best = std::hypot(real, imaginary);
        found = c;
      }
    }
    right += found == data.train.label(i);
  }
  EXPECT_GT(right, 195);
}

TEST(GeneratedImages, AreTheSameAtEachCopyAndDiffer) {
  const DataSets data = GenerateImages(ImageOptions()), again = GenerateImages(ImageOptions());
  EXPECT_EQ(ValuesOf(data.train, 7), ValuesOf(again.train, 7));
  EXPECT_NE(ValuesOf(data.train, 7), ValuesOf(data.train, 8));
  EXPECT_NE(ValuesOf(data.train, 0), ValuesOf(data.test, 0));
}

}  // namespace
}  // namespace catchment
