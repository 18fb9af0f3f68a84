#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "worker/data/gzip_file.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

constexpr int kClasses = 10;
constexpr SampleShape kShape = {3, 32, 32};
constexpr int64_t kPixels = 3 * 32 * 32;
constexpr int64_t kRecord = 1 + kPixels;
constexpr Normalization kChannels[] = {{0.4914f, 0.2470f}, {0.4822f, 0.2435f}, {0.4465f, 0.2616f}};
constexpr char kRemedy[] =
    "Fetch cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html "
    "and unpack its .bin files there";

// Returns the path of `name` in `directory`, or "".
std::string Find(const std::string& directory, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    const std::string path = absl::StrCat(directory, "/", name, suffix);
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return "";
}

// Returns the paths of the `names` that exist in `directory`.
std::vector<std::string> FindAll(const std::string& directory, const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    if (std::string path = Find(directory, name); !path.empty()) paths.push_back(std::move(path));
  }
  return paths;
}

struct Files {
  std::vector<std::string> train, test;
};

Files FilesIn(const std::string& directory) {
  Files files = {FindAll(directory, {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                     "data_batch_4.bin", "data_batch_5.bin"}),
                 FindAll(directory, {"test_batch.bin"})};
  if (files.train.empty()) files.train = FindAll(directory, {"train.bin"});
  if (files.test.empty()) files.test = FindAll(directory, {"test.bin"});
  return files;
}

std::vector<std::string> Places(const v1::Cifar10& cifar10, const DataPaths& paths) {
  if (!cifar10.directory().empty()) return {cifar10.directory()};
  std::vector<std::string> places;
  if (!paths.catchment_data.empty()) places.push_back(paths.catchment_data + "/cifar10");
  if (!paths.xdg_cache_home.empty()) places.push_back(paths.xdg_cache_home + "/catchment/cifar10");
  if (!paths.home.empty()) places.push_back(paths.home + "/.cache/catchment/cifar10");
  return places;
}

absl::StatusOr<Files> FindFiles(const v1::Cifar10& cifar10, const DataPaths& paths) {
  const std::vector<std::string> places = Places(cifar10, paths);
  for (const std::string& place : places) {
    Files files = FilesIn(place);
    if (files.train.empty() && files.test.empty()) continue;
    if (!files.train.empty() && !files.test.empty()) return files;
    return absl::NotFoundError(
        absl::StrCat(place, " has CIFAR-10's ", files.train.empty() ? "test" : "training", " files, but no ",
                     files.train.empty() ? "data_batch_1.bin" : "test_batch.bin", "[.gz]. ", kRemedy));
  }
  return absl::NotFoundError(absl::StrCat(
      "no CIFAR-10 files (data_batch_1.bin[.gz] to data_batch_5.bin, test_batch.bin). Looked in: ",
      places.empty() ? "nowhere; set CATCHMENT_DATA, or data.cifar10.directory" : absl::StrJoin(places, ", "),
      ". ", kRemedy));
}

struct Records {
  std::vector<uint8_t> pixels;
  std::vector<int32_t> labels;
};

absl::Status Append(const std::string& path, Records* records) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadGzipFile(path));
  const auto size = static_cast<int64_t>(bytes.size());
  if (size == 0 || size % kRecord != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has ", size, " bytes, not a multiple of ",
                                                   kRecord, ", a label and 3 x 32 x 32 pixels. Delete it. ",
                                                   kRemedy));
  }
  for (int64_t at = 0; at < size; at += kRecord) {
    const uint8_t label = bytes[at];
    if (label >= kClasses) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": record ", at / kRecord, ", counted from 0, has the label ", label,
                       "; labels of CIFAR-10 are 0 to ", kClasses - 1, ". Delete it. ", kRemedy));
    }
    records->labels.push_back(label);
    records->pixels.insert(records->pixels.end(), bytes.begin() + at + 1, bytes.begin() + at + kRecord);
  }
  return absl::OkStatus();
}

absl::StatusOr<Dataset> LoadPart(const std::vector<std::string>& paths) {
  Records records;
  for (const std::string& path : paths) {
    RETURN_IF_ERROR(Append(path, &records));
  }
  auto images =
      std::make_unique<ByteImages>(std::move(records.pixels), kShape.height * kShape.width,
                                   std::vector<Normalization>(std::begin(kChannels), std::end(kChannels)));
  return Dataset(kShape, kClasses, std::move(images), std::move(records.labels));
}

}  // namespace

absl::StatusOr<DataSets> LoadCifar10(const v1::Cifar10& cifar10, const DataPaths& paths) {
  ASSIGN_OR_RETURN(const Files files, FindFiles(cifar10, paths));
  ASSIGN_OR_RETURN(Dataset train, LoadPart(files.train));
  ASSIGN_OR_RETURN(Dataset test, LoadPart(files.test));
  return DataSets{std::move(train), std::move(test)};
}

}  // namespace catchment
