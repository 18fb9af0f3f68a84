#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "worker/data/sources/idx.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

constexpr int kClasses = 10;
constexpr int64_t kSize = 28;
constexpr Normalization kNormalization = {0.1307f, 0.3081f};
constexpr char kRemedy[] =
    "Fetch them with deploy/fetch_mnist.sh, which `catchment examples DIR` also writes, or use generated "
    "digits: data { drawn_digits {} }";

struct File {
  const char* name;
  const char* md5;  // of the unpacked content
};
struct Part {
  File images;
  File labels;
  int64_t samples;
};

constexpr Part kTrain = {{"train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb"},
                         {"train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624"},
                         60000};
constexpr Part kTest = {{"t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea"},
                        {"t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637"},
                        10000};

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Returns the path of `file` in `directory`, or "".
std::string Find(const std::string& directory, const File& file) {
  for (const char* suffix : {"", ".gz"}) {
    const std::string path = absl::StrCat(directory, "/", file.name, suffix);
    if (Exists(path)) return path;
  }
  return "";
}

bool HasAny(const std::string& directory) {
  for (const File& file : {kTrain.images, kTrain.labels, kTest.images, kTest.labels}) {
    if (!Find(directory, file).empty()) return true;
  }
  return false;
}

std::vector<std::string> Places(const v1::Mnist& mnist, const DataPaths& paths) {
  if (!mnist.directory().empty()) return {mnist.directory()};
  std::vector<std::string> places;
  if (!paths.catchment_data.empty()) places.push_back(paths.catchment_data + "/mnist");
  if (!paths.xdg_cache_home.empty()) places.push_back(paths.xdg_cache_home + "/catchment/mnist");
  if (!paths.home.empty()) places.push_back(paths.home + "/.cache/catchment/mnist");
  return places;
}

// Returns "" if every variable that names a place is set, or none is used.
std::string UnsetVariables(const v1::Mnist& mnist, const DataPaths& paths) {
  if (!mnist.directory().empty()) return "";
  std::vector<const char*> unset;
  if (paths.catchment_data.empty()) unset.push_back("CATCHMENT_DATA");
  if (paths.xdg_cache_home.empty()) unset.push_back("XDG_CACHE_HOME");
  if (paths.home.empty()) unset.push_back("HOME");
  return unset.empty() ? "" : absl::StrCat(" (not set: ", absl::StrJoin(unset, ", "), ")");
}

absl::StatusOr<std::string> FindDirectory(const v1::Mnist& mnist, const DataPaths& paths) {
  const std::vector<std::string> places = Places(mnist, paths);
  for (const std::string& place : places) {
    if (HasAny(place)) return place;
  }
  return absl::NotFoundError(absl::StrCat(
      "no MNIST files (", kTrain.images.name, "[.gz] and the three that belong to it). Looked in: ",
      places.empty() ? "nowhere" : absl::StrJoin(places, ", "), UnsetVariables(mnist, paths), ". ", kRemedy));
}

absl::StatusOr<std::string> Require(const std::string& directory, const File& file) {
  const std::string path = Find(directory, file);
  if (!path.empty()) return path;
  return absl::NotFoundError(absl::StrCat(directory, " has other MNIST files, but no ", file.name, " or ",
                                          file.name, ".gz. ", kRemedy));
}

absl::Status CheckContent(const std::string& path, const File& file, const IdxArray& array) {
  if (array.md5 == file.md5) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": is not MNIST's ", file.name,
                                          ": the MD5 of its unpacked content is ", array.md5, ", expected ",
                                          file.md5, ". Delete it. ", kRemedy));
}

absl::Status CheckPart(const Part& part, const std::string& images_path, const std::string& labels_path,
                       const LabelledImages& read) {
  const std::vector<int64_t> expected = {part.samples, kSize, kSize};
  if (read.images.dimensions != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(images_path, ": holds ", DimensionsToString(read.images.dimensions), "; MNIST's is ",
                     DimensionsToString(expected), ". ", kRemedy));
  }
  const absl::Status images = CheckContent(images_path, part.images, read.images);
  return images.ok() ? CheckContent(labels_path, part.labels, read.labels) : images;
}

absl::StatusOr<Dataset> LoadPart(const std::string& directory, const Part& part) {
  ASSIGN_OR_RETURN(const std::string images_path, Require(directory, part.images));
  ASSIGN_OR_RETURN(const std::string labels_path, Require(directory, part.labels));
  ASSIGN_OR_RETURN(LabelledImages read, ReadLabelledImages(images_path, labels_path, kClasses));
  RETURN_IF_ERROR(CheckPart(part, images_path, labels_path, read));
  return Dataset({1, kSize, kSize}, kClasses, kNormalization, std::move(read.images.values),
                 read.labels.values);
}

}  // namespace

absl::StatusOr<DataSets> LoadMnist(const v1::Mnist& mnist, const DataPaths& paths) {
  ASSIGN_OR_RETURN(const std::string directory, FindDirectory(mnist, paths));
  ASSIGN_OR_RETURN(Dataset train, LoadPart(directory, kTrain));
  ASSIGN_OR_RETURN(Dataset test, LoadPart(directory, kTest));
  return DataSets{std::move(train), std::move(test)};
}

}  // namespace catchment
