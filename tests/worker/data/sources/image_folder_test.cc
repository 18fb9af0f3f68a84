#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/job/validate.h"
#include "tests/worker/data/idx_files.h"
#include "tests/worker/data/jpeg_files.h"
#include "worker/data/augmentation.h"
#include "worker/data/batch_reader.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

using testing::AllOf;
using testing::HasSubstr;

v1::Job MakeJob(const std::string& train, const std::string& test = "", uint32_t classes = 3,
                uint32_t size = 16) {
  v1::Job job;
  v1::ImageFolder* const folder = job.mutable_data()->mutable_image_folder();
  folder->set_train(train);
  folder->set_test(test);
  folder->set_classes(classes);
  folder->set_size(size);
  job.mutable_model()->add_layers()->mutable_flatten();
  job.mutable_model()->add_layers()->mutable_dense()->set_units(classes);
  job.set_batch_size(2);
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return complete.value_or(job);
}

std::string Error(const v1::Job& job, const DataPaths& paths = {}) {
  return std::string(LoadData(job, paths).status().message());
}

class ImageFolderTest : public testing::Test {
 protected:
  ImageFolderTest() : root_(std::filesystem::path(TestDirectory()).lexically_normal()) {
    std::filesystem::remove_all(root_);
    WriteImageFolder(train(), {});
    WriteImageFolder(test(), {.images = 2, .seed = 2});
  }

  std::string train() const { return root_ + "/train"; }
  std::string test() const { return root_ + "/test"; }
  // An image of one color.
  std::string WriteImage(const std::string& path, uint8_t red, uint8_t green, uint8_t blue, int width = 24,
                         int height = 24) const {
    std::vector<uint8_t> pixels;
    for (int i = 0; i < width * height; ++i) pixels.insert(pixels.end(), {red, green, blue});
    const std::filesystem::path whole = root_ + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    return WriteFile(whole.parent_path(), whole.filename(), EncodeJpeg(pixels, width, height));
  }

  const std::string root_;
};

TEST_F(ImageFolderTest, NumbersClassesByTheirNames) {
  const absl::StatusOr<DataSets> data = LoadData(MakeJob(train(), test()), {});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.size(), 12);
  EXPECT_EQ(data->test.size(), 6);
  EXPECT_EQ(data->train.num_classes(), 3);
  EXPECT_EQ(data->train.input_shape(), (SampleShape{3, 16, 16}));
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(data->train.label(i), i / 4);
  EXPECT_NE(data->class_names, 0u);
  EXPECT_EQ(LoadData(MakeJob(train()), {})->test.size(), 0);
}

// As torchvision's make_dataset: directories in the order of their paths, files in that of their names.
TEST_F(ImageFolderTest, OrdersImagesAsTorchvision) {
  const std::vector<std::string> order = {"a/9.jpg",     "a/x.JPG",     "a/b/1.jpeg", "a/b/2.jpg",
                                          "a/b-c/0.jpg", "a/b/d/0.jpg", "b/0.jpg"};
  // "b-c" comes before "b/d", because "-" comes before "/".
  const std::vector<int> expected = {0, 1, 2, 3, 4, 5, 6};
  for (size_t i = 0; i < order.size(); ++i)
    WriteImage("ordered/" + order[i], static_cast<uint8_t>(20 * i), 0, 0);
  WriteFile(root_ + "/ordered/a", "notes.txt", "no image");
  WriteFile(root_ + "/ordered", "README", "no directory");
  const absl::StatusOr<DataSets> data = LoadData(MakeJob(root_ + "/ordered", "", 2), {});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->train.size(), 7);
  std::vector<float> image(3 * 16 * 16);
  for (int64_t i = 0; i < 7; ++i) {
    ASSERT_TRUE(data->train.ReadInput(i, std::nullopt, image.data()).ok());
    EXPECT_NEAR((image[0] * 0.229f + 0.485f) * 255, 20.0f * static_cast<float>(expected[i]), 3) << i;
    EXPECT_EQ(data->train.label(i), i == 6 ? 1 : 0);
  }
}

TEST_F(ImageFolderTest, NormalizesChannels) {
  const std::string path = WriteImage("one/a/0.jpg", 255, 128, 0, 40, 30);
  WriteImage("one/b/0.jpg", 0, 0, 0);
  v1::Job job = MakeJob(root_ + "/one", "", 2);
  absl::StatusOr<DataSets> data = LoadData(job, {});
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<float> image(3 * 16 * 16);
  const absl::StatusOr<int64_t> bytes = data->train.ReadInput(0, std::nullopt, image.data());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, static_cast<int64_t>(std::filesystem::file_size(path)));
  for (int i = 0; i < 16 * 16; ++i) {
    ASSERT_NEAR(image[i], (1 - 0.485f) / 0.229f, 0.05f);
    ASSERT_NEAR(image[256 + i], (128 / 255.0f - 0.456f) / 0.224f, 0.05f);
    ASSERT_NEAR(image[512 + i], (0 - 0.406f) / 0.225f, 0.05f);
  }
  v1::ImageFolder* const folder = job.mutable_data()->mutable_image_folder();
  folder->clear_mean();
  folder->add_mean(0.5f);
  folder->clear_deviation();
  folder->add_deviation(2);
  data = LoadData(job, {});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_TRUE(data->train.ReadInput(0, std::nullopt, image.data()).ok());
  EXPECT_NEAR(image[0], 0.25f, 0.01f);
}

// The same bits with any number of threads, other parts in another epoch, and the center without
// augmentation.
TEST_F(ImageFolderTest, RandomPartsFollowFromSeedEpochAndSample) {
  v1::Job job = MakeJob(train());
  job.mutable_data()->mutable_augmentation()->mutable_random_resized_crop();
  job.mutable_data()->mutable_augmentation()->set_flip(true);
  job = *FillDefaultsAndValidate(job);
  const absl::StatusOr<DataSets> data = LoadData(job, {});
  ASSERT_TRUE(data.ok()) << data.status();
  const auto read = [&](uint64_t seed, uint64_t epoch, int threads) {
    const Augmentation augmentation(job.data().augmentation(), data->train.input_shape(), seed);
    // All orders are the same, so that images can be compared.
    BatchReader reader(&data->train, &augmentation, EpochOrder(7, data->train.size()), {.threads = threads});
    EpochOrder order(7, data->train.size());
    LoadedBatch batch;
    const absl::Status status = reader.Read({0, {{epoch, 0, 12}}}, &batch);
    EXPECT_TRUE(status.ok()) << status;
    const int64_t size = data->train.input_shape().size();
    std::vector<std::vector<float>> images(12);
    for (int64_t i = 0; i < 12; ++i) {
      images[order.order(epoch)[i]].assign(batch.inputs.data() + i * size,
                                           batch.inputs.data() + (i + 1) * size);
    }
    return images;
  };
  const auto images = read(5, 0, 1);
  EXPECT_EQ(images, read(5, 0, 3));
  const auto next = read(5, 1, 2), other = read(6, 0, 2);
  for (size_t i = 0; i < images.size(); ++i) {
    EXPECT_NE(images[i], next[i]);
    EXPECT_NE(images[i], other[i]);
  }
}

TEST_F(ImageFolderTest, LooksWhereTablesAreLookedFor) {
  const absl::StatusOr<DataSets> data = LoadData(MakeJob("train", "test"), {.catchment_data = root_});
  ASSERT_TRUE(data.ok()) << data.status();
  v1::Job job = MakeJob("train");
  job.mutable_data()->mutable_image_folder()->set_directory(root_);
  EXPECT_TRUE(LoadData(job, {}).ok());
  EXPECT_EQ(Error(MakeJob("/none/train")), "data.image_folder.train: no directory /none/train");
  EXPECT_THAT(Error(MakeJob("none"), {.catchment_data = root_}),
              HasSubstr("data.image_folder.train: no directory " + root_ + "/none, and no directory "));
}

TEST_F(ImageFolderTest, NamesWhatIsWrongWithDirectories) {
  const std::string file = WriteFile(root_, "file", "");
  EXPECT_EQ(Error(MakeJob(file)),
            "data.image_folder.train: " + file + " is a file; name a directory that has one for each class");
  std::filesystem::create_directories(root_ + "/empty");
  EXPECT_EQ(Error(MakeJob(root_ + "/empty")),
            "data.image_folder.train: " + root_ +
                "/empty has no directories; put the images of each class in a directory of the class's name");
  EXPECT_EQ(
      Error(MakeJob(train(), "", 4)),
      "data.image_folder.classes: is 4, and " + train() +
          " has 3 directories (class_0000, class_0001, class_0002); correct the number, or the directories");
  std::filesystem::create_directories(train() + "/dog");
  EXPECT_EQ(Error(MakeJob(train(), "", 4)),
            "data.image_folder.train: the class " + train() +
                "/dog has no image (.jpg, .jpeg); add images, or remove the directory");
  WriteFile(train() + "/dog", "0.png", "");
  EXPECT_EQ(Error(MakeJob(train(), "", 4)),
            train() + "/dog/0.png is not a JPEG image; convert it, or remove it");
  std::filesystem::remove_all(train() + "/dog");
  std::filesystem::create_directory_symlink("..", train() + "/class_0000/loop");
  EXPECT_THAT(Error(MakeJob(train())), HasSubstr("is it a circle of symbolic links?"));
}

TEST_F(ImageFolderTest, TestsMustHaveTheSameClasses) {
  std::filesystem::rename(test() + "/class_0001", test() + "/klasse_0001");
  EXPECT_EQ(Error(MakeJob(train(), test())),
            "data.image_folder.test: " + test() + " has no directory class_0001, and " + train() +
                " has; both need a directory for each class, with the same names");
  WriteImage("test/class_0001/0.jpg", 0, 0, 0);
  EXPECT_EQ(Error(MakeJob(train(), test())),
            "data.image_folder.test: " + test() + " has a directory klasse_0001, and not " + train() +
                "; both need a directory for each class, with the same names");
}

TEST_F(ImageFolderTest, ChecksumsTellClassesApart) {
  const uint64_t names = LoadData(MakeJob(train()), {})->class_names;
  EXPECT_EQ(LoadData(MakeJob(test()), {})->class_names, names);
  std::filesystem::rename(test() + "/class_0002", test() + "/class_0003");
  EXPECT_NE(LoadData(MakeJob(test()), {})->class_names, names);
}

TEST_F(ImageFolderTest, NamesAllFilesThatCannotBeUsed) {
  const std::string cut = EncodeJpeg(std::vector<uint8_t>(3 * 24 * 24, 9), 24, 24).substr(0, 300);
  WriteFile(train() + "/class_0000", "image_000001.jpg", "\x89PNG");
  WriteFile(train() + "/class_0001", "image_000002.jpg", cut);
  WriteFile(train() + "/class_0001", "image_000003.jpg", "");
  WriteFile(train() + "/class_0002", "a.webp", "");
  std::filesystem::create_symlink("nowhere.jpg", train() + "/class_0002/lost.jpg");
  std::filesystem::create_symlink("nowhere", train() + "/dog");
  const absl::Status status = LoadData(MakeJob(train(), "", 4), {}).status();
  EXPECT_FALSE(absl::IsNotFound(status)) << "the data set is there";
  for (const char* named :
       {"data.image_folder.train: 6 of ", "/train/class_0000/image_000001.jpg: is a PNG image",
        "/train/class_0001/image_000002.jpg: is damaged", "/train/class_0001/image_000003.jpg: is empty",
        "/train/class_0002/a.webp is not a JPEG", "/train/class_0002/lost.jpg is a symbolic link to nothing",
        "/train/dog is a symbolic link to nothing"})
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
  // The first of many are named, and their number.
  for (int i = 0; i < 30; ++i) WriteFile(test() + "/class_0000", absl::StrCat("x", i, ".jpg"), "");
  EXPECT_THAT(Error(MakeJob(test())), AllOf(HasSubstr("x0.jpg: is empty, "),
                                            HasSubstr(", and 20 more; replace it by another image")));
}

TEST_F(ImageFolderTest, LeavesOutWhatAMacAddsAndWhatIsNotAnImage) {
  WriteFile(train() + "/class_0000", "._image_000001.jpg", std::string("\0\5\x16\7", 4));
  WriteFile(train() + "/class_0000", ".DS_Store", "");
  WriteFile(train() + "/class_0000", "Thumbs.db", "");
  WriteFile(train(), "._class_0000", "");
  std::filesystem::create_symlink("user@host.1234", train() + "/class_0000/.#notes.txt");
  const absl::StatusOr<DataSets> data = LoadData(MakeJob(train()), {});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.size(), 12);
}

TEST_F(ImageFolderTest, LookingAtTheFilesEndsWhenItIsAskedTo) {
  const absl::Status status = LoadData(MakeJob(train()), {}, [] { return true; }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

// Workers act on other codes as on those of a master or a server.
TEST_F(ImageFolderTest, AnImageThatIsLostLaterIsAnErrorOfTheData) {
  const absl::StatusOr<DataSets> data = LoadData(MakeJob(train()), {});
  ASSERT_TRUE(data.ok()) << data.status();
  std::filesystem::remove(train() + "/class_0000/image_000000.jpg");
  std::vector<float> image(3 * 16 * 16);
  const absl::Status status = data->train.ReadInput(0, std::nullopt, image.data()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/class_0000/image_000000.jpg: No such file"));
}

TEST_F(ImageFolderTest, ADamagedImageIsNamedWhenItIsRead) {
  const std::string path =
      WriteFile(train() + "/class_0001", "image_000002.jpg", "\xff\xd8 and the end \xff\xd9");
  const absl::StatusOr<DataSets> data = LoadData(MakeJob(train()), {});
  ASSERT_TRUE(data.ok()) << data.status();
  std::vector<float> image(3 * 16 * 16);
  EXPECT_TRUE(data->train.ReadInput(5, std::nullopt, image.data()).ok());
  EXPECT_THAT(std::string(data->train.ReadInput(6, std::nullopt, image.data()).status().message()),
              HasSubstr(path + ": is damaged ("));
  std::filesystem::remove(path);
  EXPECT_THAT(std::string(data->train.ReadInput(6, std::nullopt, image.data()).status().message()),
              HasSubstr("cannot open " + path));
}

TEST_F(ImageFolderTest, NeedsAsManyImagesAsAMinibatch) {
  v1::Job job = MakeJob(train());
  job.set_batch_size(13);
  EXPECT_EQ(Error(job), "batch_size: is 13, and " + train() + " has 12 images; use at most as many");
}

}  // namespace
}  // namespace catchment
