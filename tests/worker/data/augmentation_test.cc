#include "worker/data/augmentation.h"

#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace catchment {
namespace {

constexpr SampleShape kShape = {2, 3, 4};

v1::Augmentation Config(uint32_t padding, bool flip) {
  v1::Augmentation config;
  config.set_crop_padding(padding);
  config.set_flip(flip);
  return config;
}

// 1, 2, 3, ...
std::vector<float> Image() {
  std::vector<float> image(kShape.size());
  std::iota(image.begin(), image.end(), 1.0f);
  return image;
}

std::vector<float> Augmented(const Augmentation& augmentation, uint64_t sample_id) {
  std::vector<float> out(kShape.size(), -1);
  augmentation.Apply(sample_id, Image().data(), out.data());
  return out;
}

// The window that begins at (top, left) of the image with zeros around it.
std::vector<float> Window(int64_t top, int64_t left, bool mirror) {
  const std::vector<float> image = Image();
  std::vector<float> window;
  for (int64_t c = 0; c < 2; ++c)
    for (int64_t y = top; y < top + 3; ++y)
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t x = left + (mirror ? 3 - i : i);
        const bool inside = y >= 0 && y < 3 && x >= 0 && x < 4;
        window.push_back(inside ? image[(c * 3 + y) * 4 + x] : 0);
      }
  return window;
}

TEST(Augmentation, DrawsEveryWindowAndMirrorImageEquallyOften) {
  const Augmentation augmentation(Config(2, true), kShape, 5);
  std::map<std::vector<float>, int> expected;
  for (int64_t top = -2; top <= 2; ++top)
    for (int64_t left = -2; left <= 2; ++left)
      for (const bool mirror : {false, true}) expected[Window(top, left, mirror)] = 0;
  ASSERT_EQ(expected.size(), 50u);
  constexpr int kSamples = 10000;
  for (uint64_t id = 0; id < kSamples; ++id) {
    const auto found = expected.find(Augmented(augmentation, id));
    ASSERT_NE(found, expected.end()) << id;
    ++found->second;
  }
  for (const auto& [window, count] : expected) EXPECT_NEAR(count, kSamples / 50, 5 * 14);
}

TEST(Augmentation, FollowsFromSeedAndSampleAlone) {
  const Augmentation one(Config(3, true), kShape, 5), same(Config(3, true), kShape, 5),
      other(Config(3, true), kShape, 6);
  int different = 0;
  for (uint64_t id = 100; id-- > 0;) {
    EXPECT_EQ(Augmented(one, id), Augmented(same, id));
    different += Augmented(one, id) != Augmented(other, id);
  }
  EXPECT_GT(different, 80);
}

TEST(Augmentation, MayOnlyFlipOrDoNothing) {
  EXPECT_TRUE(Augmentation(Config(0, false), kShape, 5).is_identity());
  const Augmentation flips(Config(0, true), kShape, 5);
  EXPECT_FALSE(flips.is_identity());
  const std::set<std::vector<float>> both = {Window(0, 0, false), Window(0, 0, true)};
  for (uint64_t id = 0; id < 20; ++id) EXPECT_TRUE(both.contains(Augmented(flips, id)));
}

}  // namespace
}  // namespace catchment
