#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/file_access.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "worker/data/bad_files.h"
#include "worker/data/jpeg.h"
#include "worker/data/resize.h"
#include "worker/data/sample_threads.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

// Deeper directories are a circle of symbolic links.
constexpr int kMaxDepth = 32;
// The threads that examine files, because a network's file system answers many requests at a time.
constexpr int kThreads = 16;
constexpr char kRemedy[] = "; correct or remove it";

// The images of a directory: classes and images in torchvision's order.
struct ImageList {
  std::string root;  // where the files are: a copy, if they are staged
  std::string name;  // of root, for people: the directory that the job names
  std::vector<std::string> classes;
  std::vector<std::string> directories;  // below root
  struct Image {
    uint32_t directory;
    uint32_t name_size;
    uint64_t name_begin;  // in `names`
    int32_t label;
  };
  std::vector<Image> images;
  std::string names;  // of all files, one after another

  std::string Path(int64_t i) const { return Below(root, i); }
  std::string Name(int64_t i) const { return Below(name, i); }
  std::string Below(const std::string& top, int64_t i) const {
    const Image& image = images[i];
    return absl::StrCat(top, "/", directories[image.directory], "/",
                        absl::string_view(names).substr(image.name_begin, image.name_size));
  }
};

struct Entries {
  std::vector<std::string> directories;  // symbolic links to directories, too
  std::vector<std::string> others;
  std::vector<std::string> broken;  // symbolic links to nothing
};

bool IsDirectory(const std::string& path) {
  struct stat about;
  return stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

// Returns the names in a directory, sorted.
absl::StatusOr<Entries> ListDirectory(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
  const auto failed = [&path] { return absl::ErrnoToStatus(errno, "cannot list the directory " + path); };
  if (directory == nullptr) return failed();
  Entries entries;
  for (errno = 0; const dirent* const entry = readdir(directory.get()); errno = 0) {
    const std::string name = entry->d_name;
    // macOS adds a file ._NAME to archives for each file NAME.
    if (name == "." || name == ".." || absl::StartsWith(name, "._")) continue;
    const std::string whole = absl::StrCat(path, "/", name);
    const bool known = entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN;
    const bool is_directory = known ? entry->d_type == DT_DIR : IsDirectory(whole);
    const bool is_broken = !known && !is_directory && access(whole.c_str(), F_OK) != 0 && errno == ENOENT;
    (is_directory ? entries.directories : is_broken ? entries.broken : entries.others).push_back(name);
  }
  if (errno != 0) return failed();
  std::sort(entries.directories.begin(), entries.directories.end());
  std::sort(entries.others.begin(), entries.others.end());
  return entries;
}

// Returns the ending of an image that torchvision reads; empty for other files.
std::string ImageEnding(absl::string_view name) {
  constexpr const char* kEndings[] = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                      ".pgm", ".tif",  ".tiff", ".webp"};
  for (const char* const ending : kEndings) {
    if (absl::EndsWithIgnoreCase(name, ending)) return ending;
  }
  return "";
}

class Lister {
 public:
  Lister(const std::string& field, const std::string& root, const std::string& name) : field_(field) {
    list_.root = root;
    list_.name = name;
  }

  absl::StatusOr<ImageList> List() {
    ASSIGN_OR_RETURN(Entries entries, ListDirectory(list_.root));
    AddBroken(list_.name, entries);
    if (entries.directories.empty()) {
      RETURN_IF_ERROR(bad_.Status(field_, entries_, kEntries));
      return absl::InvalidArgumentError(absl::StrCat(
          field_, ": ", list_.root,
          " has no directories; put the images of each class in a directory of the class's name"));
    }
    list_.classes = std::move(entries.directories);
    for (size_t i = 0; i < list_.classes.size(); ++i) {
      RETURN_IF_ERROR(ListClass(static_cast<int32_t>(i)));
    }
    return std::move(list_);
  }

  // Opens the images. Returns the error of all bad files and directories.
  absl::Status Check(const ImageList& list, absl::FunctionRef<bool()> is_stopped) {
    const auto count = static_cast<int64_t>(list.images.size());
    SampleThreads threads(kThreads);
    RETURN_IF_ERROR(threads.Run(count, [&](int, int64_t i) {
      if (is_stopped()) return absl::CancelledError("reading the data was ended");
      if (const absl::Status status = CheckJpeg(list.Path(i), list.Name(i)); !status.ok())
        bad_.Add(entries_ + i, status);
      return absl::OkStatus();
    }));
    return bad_.Status(field_, entries_ + count, kEntries);
  }

 private:
  using Directory = std::pair<std::string, std::vector<std::string>>;  // the path below root; names of images

  absl::Status ListClass(int32_t label) {
    const std::string& name = list_.classes[label];
    std::vector<Directory> found;
    RETURN_IF_ERROR(Collect(name, 0, &found));
    std::sort(found.begin(), found.end());
    const size_t before = list_.images.size();
    for (const auto& [directory, names] : found) {
      for (const std::string& image : names) {
        list_.images.push_back({static_cast<uint32_t>(list_.directories.size()),
                                static_cast<uint32_t>(image.size()), list_.names.size(), label});
        list_.names += image;
      }
      if (!names.empty()) list_.directories.push_back(directory);
    }
    if (list_.images.size() > before || bad_.any()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(field_, ": the class ", list_.root, "/", name,
                     " has no image (.jpg, .jpeg); add images, or remove the directory"));
  }

  // Adds a directory and those below it.
  absl::Status Collect(const std::string& directory, int depth, std::vector<Directory>* found) {
    const std::string path = absl::StrCat(list_.root, "/", directory);
    if (depth > kMaxDepth) {
      return absl::InvalidArgumentError(absl::StrCat(field_, ": ", path, " is more than ", kMaxDepth,
                                                     " directories deep; is it a circle of symbolic links?"));
    }
    absl::StatusOr<Entries> listed = ListDirectory(path);
    if (!listed.ok()) {
      Add(absl::Status(listed.status().code(), absl::StrCat(listed.status().message(), kRemedy)));
      return absl::OkStatus();
    }
    Entries& entries = *listed;
    AddBroken(absl::StrCat(list_.name, "/", directory), entries);
    std::vector<std::string> images;
    for (std::string& name : entries.others) {
      const std::string ending = ImageEnding(name);
      if (ending.empty()) continue;
      if (absl::StartsWith(ending, ".jp")) {
        images.push_back(std::move(name));
      } else {
        Add(absl::InvalidArgumentError(absl::StrCat(list_.name, "/", directory, "/", name,
                                                    " is not a JPEG image; convert it, or remove it")));
      }
    }
    found->emplace_back(directory, std::move(images));
    for (const std::string& name : entries.directories) {
      RETURN_IF_ERROR(Collect(absl::StrCat(directory, "/", name), depth + 1, found));
    }
    return absl::OkStatus();
  }

  void Add(const absl::Status& why) { bad_.Add(entries_++, why); }

  // A link may have been a class, a directory or an image. Editors keep hidden ones to nothing.
  void AddBroken(const std::string& directory, const Entries& entries) {
    for (const std::string& name : entries.broken) {
      if (absl::StartsWith(name, ".") && ImageEnding(name).empty()) continue;
      Add(absl::NotFoundError(absl::StrCat(directory, "/", name, " is a symbolic link to nothing", kRemedy)));
    }
  }

  static constexpr char kEntries[] = "files and directories";

  const std::string field_;
  ImageList list_;
  int64_t entries_ = 0;  // bad ones, which have been added while directories were listed
  BadFiles bad_;
};

std::vector<Normalization> NormalizationOf(const v1::ImageFolder& folder) {
  std::vector<Normalization> all(3);
  for (int c = 0; c < 3; ++c) {
    all[c] = {folder.mean(folder.mean_size() == 1 ? 0 : c),
              folder.deviation(folder.deviation_size() == 1 ? 0 : c)};
  }
  return all;
}

// Images that are read, decoded and resized whenever they are used.
class ImageFiles final : public SampleContent {
 public:
  ImageFiles(ImageList list, const v1::Data& data)
      : list_(std::move(list)),
        size_(data.image_folder().size()),
        resize_(data.image_folder().resize()),
        crop_(data.augmentation().random_resized_crop()),
        normalization_(NormalizationOf(data.image_folder())) {}

  absl::StatusOr<int64_t> Read(int64_t index, std::optional<uint64_t> crop_seed, float* out) const override {
    ASSIGN_OR_RETURN(const std::string file, ReadFile(list_.Path(index)));
    std::optional<Resizer> resizer;
    RETURN_IF_ERROR(DecodeJpeg(
        file, list_.Name(index),
        [&](int64_t width, int64_t height) {
          return resizer.emplace(PartOf(width, height, crop_seed)).rows();
        },
        [&](int64_t y, const uint8_t* rgb) { resizer->AddRow(y, rgb); }));
    Normalize(resizer->Finish(), out);
    return static_cast<int64_t>(file.size());
  }
  std::vector<Normalization> normalization() const override { return normalization_; }

 private:
  ResizedPart PartOf(int64_t width, int64_t height, std::optional<uint64_t> crop_seed) const {
    if (!crop_seed.has_value()) return CenterOf(width, height, resize_, size_);
    Random random(*crop_seed);
    return RandomPart(width, height, crop_, size_, &random);
  }

  // Writes the normalized channels of the pixels.
  void Normalize(const std::vector<uint8_t>& pixels, float* out) const {
    for (int c = 0; c < 3; ++c) {
      const auto [mean, deviation] = normalization_[c];
      const auto scale = static_cast<float>(1 / (255.0 * deviation));
      const auto offset = static_cast<float>(-1.0 * mean / deviation);
      for (size_t i = c; i < pixels.size(); i += 3) *out++ = static_cast<float>(pixels[i]) * scale + offset;
    }
  }

  const ImageList list_;
  const int64_t size_;
  const int64_t resize_;
  const v1::RandomResizedCrop crop_;
  const std::vector<Normalization> normalization_;
};

// Returns the directory that data.image_folder.train or test means.
absl::StatusOr<std::string> FindDirectory(const std::string& name, const std::string& field,
                                          const std::string& directory, const DataPaths& paths) {
  std::vector<std::string> places = {directory};
  if (directory.empty()) places = {paths.catchment_data, "."};
  if (absl::StartsWith(name, "/")) places = {""};
  std::vector<std::string> tried;
  for (const std::string& place : places) {
    if (place.empty() && !absl::StartsWith(name, "/")) continue;
    std::error_code error;
    const std::filesystem::path path =
        std::filesystem::absolute(place.empty() ? name : absl::StrCat(place, "/", name), error);
    const std::string found = path.lexically_normal().string();
    if (IsDirectory(found)) return absl::EndsWith(found, "/") ? found.substr(0, found.size() - 1) : found;
    if (std::filesystem::exists(found, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": ", found, " is a file; name a directory that has one for each class"));
    }
    tried.push_back(found);
  }
  return absl::NotFoundError(
      absl::StrCat(field, ": no directory ", absl::StrJoin(tried, ", and no directory "),
                   absl::StartsWith(name, "/")
                       ? ""
                       : ". Relative names are looked up in data.image_folder.directory or, if that is not "
                         "set, in $CATCHMENT_DATA and then in the worker's working directory"));
}

// Names the first classes of a list.
std::string Names(const std::vector<std::string>& classes) {
  constexpr size_t kShown = 5;
  std::vector<std::string> shown(classes.begin(), classes.begin() + std::min(classes.size(), kShown));
  if (classes.size() > kShown) shown.emplace_back("...");
  return absl::StrJoin(shown, ", ");
}

absl::Status CheckTrain(const ImageList& train, const v1::Job& job) {
  const v1::ImageFolder& folder = job.data().image_folder();
  if (train.classes.size() != folder.classes()) {
    return absl::InvalidArgumentError(absl::StrCat("data.image_folder.classes: is ", folder.classes(),
                                                   ", and ", train.root, " has ", train.classes.size(),
                                                   " directories (", Names(train.classes),
                                                   "); correct the number, or the directories"));
  }
  if (train.images.size() < job.batch_size()) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size: is ", job.batch_size(), ", and ", train.root,
                                                   " has ", train.images.size(),
                                                   " images; use at most as many"));
  }
  if (train.images.size() <= UINT32_MAX) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("data.image_folder.train: has ", train.images.size(),
                                                 " images; at most ", UINT32_MAX, " can be numbered"));
}

absl::Status CheckTest(const ImageList& train, const ImageList& test) {
  std::vector<std::string> different;
  std::set_symmetric_difference(train.classes.begin(), train.classes.end(), test.classes.begin(),
                                test.classes.end(), std::back_inserter(different));
  if (different.empty()) return absl::OkStatus();
  const bool missing = std::binary_search(train.classes.begin(), train.classes.end(), different.front());
  return absl::InvalidArgumentError(absl::StrCat(
      "data.image_folder.test: ", test.root, missing ? " has no directory " : " has a directory ",
      different.front(), missing ? ", and " : ", and not ", train.root, missing ? " has" : "",
      "; both need a directory for each class, with the same names"));
}

uint64_t ChecksumOf(const std::vector<std::string>& names) {
  uint64_t hash = names.size();
  for (const std::string& name : names) {
    hash = Derive(hash, name.size());
    for (const char c : name) hash = Derive(hash, static_cast<uint8_t>(c));
  }
  return std::max<uint64_t>(1, hash);
}

Dataset MakeDataset(ImageList list, const v1::Job& job) {
  const v1::ImageFolder& folder = job.data().image_folder();
  std::vector<int32_t> labels;
  labels.reserve(list.images.size());
  for (const ImageList::Image& image : list.images) labels.push_back(image.label);
  return Dataset({3, folder.size(), folder.size()}, static_cast<int>(folder.classes()),
                 std::make_unique<ImageFiles>(std::move(list), job.data()), std::move(labels));
}

// Lists the directory of data.image_folder.train or test. Checks the images if `is_stopped` is not null.
absl::StatusOr<ImageList> ListPart(const v1::ImageFolder& folder, bool test, const DataPaths& paths,
                                   const absl::FunctionRef<bool()>* is_stopped) {
  const std::string field = test ? "data.image_folder.test" : "data.image_folder.train";
  ASSIGN_OR_RETURN(const std::string root,
                   FindDirectory(test ? folder.test() : folder.train(), field, folder.directory(), paths));
  Lister lister(field, StagedPath(paths, root), root);
  ASSIGN_OR_RETURN(ImageList list, lister.List());
  if (is_stopped != nullptr) RETURN_IF_ERROR(lister.Check(list, *is_stopped));
  return list;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListImageFolder(const v1::ImageFolder& folder, bool test,
                                                         const DataPaths& paths) {
  if (test && folder.test().empty()) return std::vector<std::string>();
  ASSIGN_OR_RETURN(const ImageList list, ListPart(folder, test, paths, nullptr));
  std::vector<std::string> files;
  for (size_t i = 0; i < list.images.size(); ++i) files.push_back(list.Path(static_cast<int64_t>(i)));
  return files;
}

absl::StatusOr<DataSets> LoadImageFolder(const v1::Job& job, const DataPaths& paths,
                                         absl::FunctionRef<bool()> is_stopped) {
  const v1::ImageFolder& folder = job.data().image_folder();
  ASSIGN_OR_RETURN(ImageList train, ListPart(folder, /*test=*/false, paths, &is_stopped));
  RETURN_IF_ERROR(CheckTrain(train, job));
  ImageList test;
  if (!folder.test().empty()) {
    ASSIGN_OR_RETURN(test, ListPart(folder, /*test=*/true, paths, &is_stopped));
    RETURN_IF_ERROR(CheckTest(train, test));
  }
  const uint64_t class_names = ChecksumOf(train.classes);
  return DataSets{MakeDataset(std::move(train), job), MakeDataset(std::move(test), job), class_names};
}

}  // namespace catchment
