#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/job/data_shape.h"
#include "common/job/job_file.h"
#include "common/job/presets.h"
#include "common/job/validate.h"
#include "common/model_shapes.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

std::vector<std::string> Examples() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("examples")) {
    if (entry.path().extension() == ".textproto") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

int64_t Parameters(const std::string& path) {
  const auto job = LoadJob(path);
  EXPECT_TRUE(job.ok()) << job.status();
  const DataShape shape = ShapeOf(job->data());
  const auto layers = InferShapes(job->model(), shape.input, shape.num_classes);
  EXPECT_TRUE(layers.ok()) << layers.status();
  return CountParameters(*layers);
}

TEST(Examples, AreSoundWithEveryPreset) {
  ASSERT_GE(Examples().size(), 3u);
  for (const std::string& path : Examples()) {
    for (const Preset& preset : Presets()) {
      const auto job = LoadJob(path, {std::string("algorithm.preset=") + preset.name, "workers=4"});
      ASSERT_TRUE(job.ok()) << job.status();
      const auto filled = FillDefaultsAndValidate(*job);
      EXPECT_TRUE(filled.ok()) << path << " with " << preset.name << ": " << filled.status();
    }
  }
}

TEST(Examples, AreCalledAsTheirFiles) {
  for (const std::string& path : Examples()) {
    const auto job = LoadJob(path);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->name(), std::filesystem::path(path).stem().string());
  }
}

TEST(Examples, HaveTheParametersThatTheirCommentsSay) {
  EXPECT_EQ(Parameters("examples/mnist_cnn.textproto"), 1199882);
  EXPECT_EQ(Parameters("examples/drawn_digits.textproto"), 1199882);
  EXPECT_EQ(Parameters("examples/mnist_mlp.textproto"), 235146);
  EXPECT_EQ(Parameters("examples/synthetic.textproto"), 1200000);
}

}  // namespace
}  // namespace catchment
