#include "common/job/data_sources.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/text.h"

namespace catchment {
namespace {

// ------------------------------------------------------------------------ files

std::string InDirectory(const std::string& directory) { return directory.empty() ? "" : "; in " + directory; }

DataShape MnistShape(const v1::Data&) { return {{1, 28, 28}, 10, 60000, 10000}; }

// Checks the batch size against a training set whose size does not depend on the job.
void CheckBatchSize(const v1::Job& job, Problems* problems) {
  const int64_t samples = ShapeOf(job.data()).train_samples;
  problems->Require(job.batch_size() <= samples, "batch_size", job.batch_size(),
                    absl::StrCat("must not be above the samples of the training set, ", samples));
}

std::string DescribeMnist(const v1::Data& data, const std::string& sizes) {
  return absl::StrCat("MNIST: ", sizes, InDirectory(data.mnist().directory()));
}

DataShape Cifar10Shape(const v1::Data&) { return {{3, 32, 32}, 10, 50000, 10000, true}; }

std::string DescribeCifar10(const v1::Data& data, const std::string& sizes) {
  return absl::StrCat("CIFAR-10: ", sizes, InDirectory(data.cifar10().directory()));
}

DataShape TableShape(const v1::Data& data) {
  return {ShapeOfTable(data.table()), TargetOfTable(data.table()), 0, 0, true};
}

void FillTable(v1::Data* data) {
  CATCHMENT_DEFAULT(data->mutable_table(), features, "features");
  CATCHMENT_DEFAULT(data->mutable_table(), labels, "labels");
}

void CheckTableOf(const v1::Job& job, Problems* problems) { CheckTable(job.data().table(), problems); }

std::string DescribeTable(const v1::Data& data, const std::string&) {
  const v1::FileDataset& table = data.table();
  const TargetShape target = TargetOfTable(table);
  return absl::StrCat(
      "table: samples of ", ToString(ShapeOfTable(table)), " with ",
      target.is_real() ? Plural(target.reals, "real target")
                       : absl::StrCat("one of ", target.classes, " classes"),
      ", from ", absl::StrJoin(table.train(), ", "),
      table.test().empty() ? "" : absl::StrCat("; for tests from ", absl::StrJoin(table.test(), ", ")),
      InDirectory(table.directory()), ". The number of rows is known after a worker has read them");
}

constexpr float kMeans[] = {0.485f, 0.456f, 0.406f}, kDeviations[] = {0.229f, 0.224f, 0.225f};

DataShape ImageFolderShape(const v1::Data& data) {
  const v1::ImageFolder& folder = data.image_folder();
  return {{3, folder.size(), folder.size()}, static_cast<int>(folder.classes()), 0, 0, true};
}

void FillImageFolder(v1::Data* data) {
  v1::ImageFolder* const folder = data->mutable_image_folder();
  CATCHMENT_DEFAULT(folder, size, 224);
  CATCHMENT_DEFAULT(folder, resize, (folder->size() * 256 + 112) / 224);
  if (folder->mean().empty()) folder->mutable_mean()->Add(std::begin(kMeans), std::end(kMeans));
  if (folder->deviation().empty())
    folder->mutable_deviation()->Add(std::begin(kDeviations), std::end(kDeviations));
}

void CheckImageFolder(const v1::Job& job, Problems* problems) {
  constexpr uint32_t kMaxSize = 4096, kMaxResize = 8192, kMaxClasses = 1'000'000;
  const v1::ImageFolder& folder = job.data().image_folder();
  if (folder.train().empty())
    problems->Add("data.image_folder.train", Reason::kMissing,
                  "is empty; name the directory that has one for each class");
  problems->Within<uint32_t>(2, kMaxClasses, "data.image_folder.classes", folder.classes());
  problems->Within<uint32_t>(1, kMaxSize, "data.image_folder.size", folder.size());
  problems->Within(folder.size(), kMaxResize, "data.image_folder.resize", folder.resize());
  for (const auto* values : {&folder.mean(), &folder.deviation()}) {
    if (values->size() == 1 || values->size() == 3) continue;
    problems->Add(values == &folder.mean() ? "data.image_folder.mean" : "data.image_folder.deviation",
                  Reason::kRange, absl::StrCat("has ", values->size(), " numbers; must have 1 or 3"));
  }
  for (const float mean : folder.mean())
    problems->Require(std::isfinite(mean), "data.image_folder.mean", mean, "must be a number");
  for (const float deviation : folder.deviation())
    problems->Positive("data.image_folder.deviation", deviation);
}

std::string DescribeImageFolder(const v1::Data& data, const std::string&) {
  const v1::ImageFolder& folder = data.image_folder();
  return absl::StrCat("JPEG images of ", folder.classes(), " classes, from ", folder.train(),
                      folder.test().empty() ? "" : absl::StrCat("; for tests from ", folder.test()),
                      InDirectory(folder.directory()),
                      ". The number of images is known after a worker has counted them");
}

// ------------------------------------------------------------------------ made by the program

template <typename Drawn>
void CheckDrawn(const std::string& path, const Drawn& drawn, uint32_t batch_size, Problems* problems) {
  constexpr uint32_t kMost = 10'000'000;
  problems->Within<uint32_t>(1, kMost, path + ".train_samples", drawn.train_samples());
  problems->Within<uint32_t>(1, kMost, path + ".test_samples", drawn.test_samples());
  problems->Require(batch_size <= std::max(1u, drawn.train_samples()), "batch_size", batch_size,
                    absl::StrCat("must not be above ", path, ".train_samples, ", drawn.train_samples()));
}

// Each class has a grating of its own, and the finest must be coarser than two pixels.
void CheckGratings(const v1::GeneratedImages& images, Problems* problems) {
  constexpr uint32_t kLargest = 4096, kMaxClasses = 100'000;
  problems->Within<uint32_t>(4, kLargest, "data.generated_images.size", images.size());
  problems->Within<uint32_t>(2, kMaxClasses, "data.generated_images.classes", images.classes());
  const auto half = static_cast<uint64_t>(images.size() / 2);
  problems->Require(
      images.classes() <= half * half, "data.generated_images.classes", images.classes(),
      absl::StrCat("images of size ", images.size(), " have room for ", half * half, "; use a larger size"));
}

template <typename Drawn>
void FillDrawn(uint32_t train_samples, uint32_t test_samples, Drawn* drawn) {
  CATCHMENT_DEFAULT(drawn, train_samples, train_samples);
  CATCHMENT_DEFAULT(drawn, test_samples, test_samples);
  CATCHMENT_DEFAULT(drawn, seed, 1);
}

DataShape DrawnDigitsShape(const v1::Data& data) {
  return {{1, 28, 28}, 10, data.drawn_digits().train_samples(), data.drawn_digits().test_samples()};
}

void FillDrawnDigits(v1::Data* data) { FillDrawn(20000, 4000, data->mutable_drawn_digits()); }

void CheckDrawnDigits(const v1::Job& job, Problems* problems) {
  CheckDrawn("data.drawn_digits", job.data().drawn_digits(), job.batch_size(), problems);
}

std::string DescribeDrawnDigits(const v1::Data& data, const std::string& sizes) {
  return absl::StrCat("digits drawn by the program, seed ", data.drawn_digits().seed(), ": ", sizes);
}

DataShape GeneratedEventsShape(const v1::Data& data) {
  return {SampleShape::Sequence(50, 19), 3, data.generated_events().train_samples(),
          data.generated_events().test_samples()};
}

void FillGeneratedEvents(v1::Data* data) { FillDrawn(20000, 4000, data->mutable_generated_events()); }

void CheckGeneratedEvents(const v1::Job& job, Problems* problems) {
  CheckDrawn("data.generated_events", job.data().generated_events(), job.batch_size(), problems);
}

std::string DescribeGeneratedEvents(const v1::Data&, const std::string& sizes) {
  return "events drawn by the program: " + sizes;
}

DataShape GeneratedImagesShape(const v1::Data& data) {
  const v1::GeneratedImages& images = data.generated_images();
  return {{3, images.size(), images.size()},
          static_cast<int>(images.classes()),
          images.train_samples(),
          images.test_samples()};
}

void FillGeneratedImages(v1::Data* data) {
  FillDrawn(2048, 256, data->mutable_generated_images());
  CATCHMENT_DEFAULT(data->mutable_generated_images(), size, 224);
  CATCHMENT_DEFAULT(data->mutable_generated_images(), classes, 1000);
}

void CheckGeneratedImages(const v1::Job& job, Problems* problems) {
  CheckDrawn("data.generated_images", job.data().generated_images(), job.batch_size(), problems);
  CheckGratings(job.data().generated_images(), problems);
}

std::string DescribeGeneratedImages(const v1::Data&, const std::string& sizes) {
  return "images drawn by the program: " + sizes;
}

// ------------------------------------------------------------------------ without content

DataShape SyntheticShape(const v1::Data& data) {
  return {SampleShape::Vector(1), 1, data.synthetic().samples(), 0};
}

void FillSynthetic(v1::Data* data) { CATCHMENT_DEFAULT(data->mutable_synthetic(), samples, 1000000); }

void CheckSynthetic(const v1::Job& job, Problems* problems) {
  const uint32_t samples = job.data().synthetic().samples();
  problems->AtLeast<uint32_t>(1, "data.synthetic.samples", samples);
  problems->Require(job.batch_size() <= std::max(1u, samples), "batch_size", job.batch_size(),
                    absl::StrCat("must not be above data.synthetic.samples, ", samples));
}

std::string DescribeSynthetic(const v1::Data&, const std::string& sizes) {
  return "synthetic, without content or files: " + sizes;
}

DataShape ExternalShape(const v1::Data& data) {
  return {SampleShape::Vector(1), 1, static_cast<int64_t>(data.external().train_samples()),
          static_cast<int64_t>(data.external().test_samples())};
}

std::string DescribeExternal(const v1::Data&, const std::string& sizes) {
  return "loaded by the workers' program: " + sizes;
}

constexpr DataSource kSources[] = {
    {.source = v1::Data::kMnist, .shape = MnistShape, .check = CheckBatchSize, .describe = DescribeMnist},
    {.source = v1::Data::kCifar10,
     .shape = Cifar10Shape,
     .check = CheckBatchSize,
     .describe = DescribeCifar10},
    {.source = v1::Data::kDrawnDigits,
     .shape = DrawnDigitsShape,
     .fill_defaults = FillDrawnDigits,
     .check = CheckDrawnDigits,
     .describe = DescribeDrawnDigits},
    {.source = v1::Data::kGeneratedEvents,
     .shape = GeneratedEventsShape,
     .fill_defaults = FillGeneratedEvents,
     .check = CheckGeneratedEvents,
     .describe = DescribeGeneratedEvents},
    {.source = v1::Data::kGeneratedImages,
     .shape = GeneratedImagesShape,
     .fill_defaults = FillGeneratedImages,
     .check = CheckGeneratedImages,
     .describe = DescribeGeneratedImages},
    {.source = v1::Data::kTable,
     .shape = TableShape,
     .fill_defaults = FillTable,
     .check = CheckTableOf,
     .describe = DescribeTable},
    {.source = v1::Data::kImageFolder,
     .shape = ImageFolderShape,
     .fill_defaults = FillImageFolder,
     .check = CheckImageFolder,
     .describe = DescribeImageFolder},
    {.source = v1::Data::kSynthetic,
     .shape = SyntheticShape,
     .fill_defaults = FillSynthetic,
     .check = CheckSynthetic,
     .describe = DescribeSynthetic},
    {.source = v1::Data::kExternal, .shape = ExternalShape, .describe = DescribeExternal},
};

}  // namespace

const DataSource& SourceOf(const v1::Data& data) {
  for (const DataSource& source : kSources) {
    if (source.source == data.source_case()) return source;
  }
  return kSources[0];
}

std::string ListDataSources() {
  return absl::StrJoin(kSources, ", ", [](std::string* out, const DataSource& source) {
    absl::StrAppend(out, v1::Data::descriptor()->FindFieldByNumber(source.source)->name(), " {}");
  });
}

}  // namespace catchment
