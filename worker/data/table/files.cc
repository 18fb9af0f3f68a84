#include "worker/data/table/files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "worker/data/mapped_file.h"

namespace catchment {
namespace {

constexpr char kEndings[] = ".csv, .npy, .h5, .hdf5, .shard, or .txt for a list of names";

bool IsList(const std::string& path) { return absl::EndsWith(path, ".txt"); }

std::optional<TableFormat> FormatOf(const std::string& path) {
  if (absl::EndsWith(path, ".csv")) return TableFormat::kCsv;
  if (absl::EndsWith(path, ".npy")) return TableFormat::kNpy;
  if (absl::EndsWith(path, ".h5") || absl::EndsWith(path, ".hdf5")) return TableFormat::kHdf5;
  if (absl::EndsWith(path, ".shard")) return TableFormat::kShard;
  return std::nullopt;
}

// Wildcards are * and ? alone.
std::string GlobPattern(const std::string& name) {
  std::string pattern;
  for (char c : name) {
    if (c == '[' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::vector<std::string> Glob(const std::string& name) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (glob(GlobPattern(name).c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

class Finder {
 public:
  Finder(const std::string& field, const std::string& directory, const DataPaths& paths) : field_(field) {
    if (!directory.empty()) {
      places_ = {directory + "/"};
      return;
    }
    if (!paths.catchment_data.empty()) places_.push_back(paths.catchment_data + "/");
    places_.push_back("");
  }

  absl::Status Add(const std::string& name) {
    ASSIGN_OR_RETURN(const std::vector<std::string> found, Find(name));
    for (const std::string& path : found) {
      RETURN_IF_ERROR(IsList(path) ? AddList(path) : AddFile(path));
    }
    return absl::OkStatus();
  }

  const TableFiles& files() const { return files_; }

 private:
  // Returns the files of a name in the first place that has any.
  absl::StatusOr<std::vector<std::string>> Find(const std::string& name) const {
    const std::vector<std::string> places =
        absl::StartsWith(name, "/") ? std::vector<std::string>{""} : places_;
    std::vector<std::string> tried;
    for (const std::string& place : places) {
      if (std::vector<std::string> paths = Glob(place + name); !paths.empty()) return paths;
      tried.push_back(Absolute(place + name));
    }
    return absl::NotFoundError(
        absl::StrCat(field_, ": no file ", absl::StrJoin(tried, ", and no file "),
                     absl::StartsWith(name, "/")
                         ? ""
                         : ". Relative names are looked up in data.table.directory or, if that is not set, "
                           "in $CATCHMENT_DATA and then in the worker's working directory"));
  }

  absl::Status AddList(const std::string& list) {
    ASSIGN_OR_RETURN(const auto file, MappedFile::Open(list));
    ASSIGN_OR_RETURN(const absl::string_view text, Utf8Text(file->text(), list));
    bool any = false;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      const std::string name(absl::StripAsciiWhitespace(line));
      if (name.empty()) continue;
      any = true;
      const absl::StatusOr<std::vector<std::string>> found = Find(name);
      if (!found.ok()) return absl::NotFoundError(absl::StrCat(list, ": ", found.status().message()));
      for (const std::string& path : *found) {
        if (IsList(path)) {
          return absl::InvalidArgumentError(
              absl::StrCat(list, ": names ", path, ", a list; lists name files alone"));
        }
        RETURN_IF_ERROR(AddFile(path));
      }
    }
    if (any) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(list, ": is an empty list; write one file name per line"));
  }

  absl::Status AddFile(const std::string& path) {
    const std::optional<TableFormat> format = FormatOf(path);
    if (!format.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(field_, ": ", path, " has none of the endings ", kEndings));
    }
    if (files_.paths.empty()) files_.format = *format;
    if (files_.format != *format) {
      return absl::InvalidArgumentError(absl::StrCat(field_, ": ", files_.paths.front(), " and ", path,
                                                     " are of different kinds; name files of one kind"));
    }
    files_.paths.push_back(path);
    return absl::OkStatus();
  }

  const std::string field_;
  std::vector<std::string> places_;  // with their closing '/'
  TableFiles files_;
};

}  // namespace

absl::StatusOr<TableFiles> FindTableFiles(const google::protobuf::RepeatedPtrField<std::string>& names,
                                          const std::string& field, const std::string& directory,
                                          const DataPaths& paths) {
  Finder finder(field, directory, paths);
  for (const std::string& name : names) {
    RETURN_IF_ERROR(finder.Add(name));
  }
  return finder.files();
}

}  // namespace catchment
