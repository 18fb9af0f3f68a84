#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/job/data_sources.h"
#include "common/job/job_text.h"
#include "common/job/model_shapes.h"
#include "common/job/presets.h"
#include "common/job/validate.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

constexpr char kAlgorithms[] = "examples/algorithms";

std::vector<std::string> Examples(const std::string& directory = "examples") {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".textproto") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string ExampleOf(const Preset& preset) {
  return std::string(kAlgorithms) + "/" + preset.name + ".textproto";
}

int64_t Parameters(const std::string& path) {
  const auto loaded = LoadJob(path);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  const auto job = FillDefaultsAndValidate(*loaded);
  EXPECT_TRUE(job.ok()) << job.status();
  const DataShape shape = ShapeOf(job->data());
  const auto layers = InferShapes(job->model(), shape.input, shape.target);
  EXPECT_TRUE(layers.ok()) << layers.status();
  return CountParameters(*layers);
}

TEST(Examples, AreSoundWithEveryPreset) {
  ASSERT_GE(Examples().size(), 7u);
  for (const std::string& path : Examples()) {
    const auto own = LoadJob(path);
    ASSERT_TRUE(own.ok()) << own.status();
    const auto complete = FillDefaultsAndValidate(*own);
    EXPECT_TRUE(complete.ok()) << path << ": " << complete.status();
    for (const Preset& preset : Presets()) {
      // The optimizer of an example belongs to its own preset.
      const auto job =
          LoadJob(path, {std::string("algorithm.preset=") + preset.name, "workers=4", "optimizer={}"});
      ASSERT_TRUE(job.ok()) << job.status();
      const auto filled = FillDefaultsAndValidate(*job);
      EXPECT_TRUE(filled.ok()) << path << " with " << preset.name << ": " << filled.status();
    }
  }
}

// The example that the page of each algorithm in docs/algorithms names is the unchanged preset.
TEST(Examples, ShowEveryPreset) {
  EXPECT_EQ(Examples(kAlgorithms).size(), Presets().size());
  for (const Preset& preset : Presets()) {
    const auto job = LoadJob(ExampleOf(preset));
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->algorithm().ShortDebugString(), std::string("preset: \"") + preset.name + "\"");
    EXPECT_FALSE(job->has_optimizer()) << ExampleOf(preset);
    const auto filled = FillDefaultsAndValidate(*job);
    EXPECT_TRUE(filled.ok()) << ExampleOf(preset) << ": " << filled.status();
  }
}

TEST(Examples, AreCalledAsTheirFiles) {
  std::vector<std::string> paths = Examples(kAlgorithms);
  for (const std::string& path : Examples()) paths.push_back(path);
  for (const std::string& path : paths) {
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
  EXPECT_EQ(Parameters("examples/hep_lstm.textproto"), 14353);
  EXPECT_EQ(Parameters("examples/resnet20_cifar10.textproto"), 272474);
  EXPECT_EQ(Parameters("examples/resnet18_images.textproto"), 11689512);  // as torchvision's
  EXPECT_EQ(Parameters("examples/resnet50.textproto"), 25557032);
  EXPECT_EQ(Parameters("examples/table_csv.textproto"), 99);
  for (const std::string& path : Examples(kAlgorithms)) EXPECT_EQ(Parameters(path), 235146) << path;
}

}  // namespace
}  // namespace catchment
