#include "worker/data/table/hdf5_parts.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

// Sources of virtual data sets, with those that they consist of.
constexpr size_t kMostSources = 100000;

std::string RealPath(const std::string& path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) == nullptr ? "" : real;
}

// Returns the directory of a file, with its slash; empty if the path is only a name.
std::string DirectoryOf(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

std::vector<std::string> Directories(const std::string& path) {
  const std::string own = RealPath(DirectoryOf(path).empty() ? "." : DirectoryOf(path));
  return {absl::StrCat(own, own == "/" ? "" : "/"), DirectoryOf(RealPath(path))};
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool IsHdf5(const std::string& path) { return H5Fis_hdf5(path.c_str()) > 0; }

// Returns a name in which a virtual data set counts its sources up, for number `n`.
std::string Counted(const std::string& pattern, size_t n) {
  return absl::StrReplaceAll(pattern, {{"%%", "%"}, {"%b", absl::StrCat(n)}});
}

}  // namespace

Hdf5Handle OpenHdf5File(const std::string& path) {
  const Hdf5Handle how(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Some shared file systems have no locks, and no process writes these files.
  H5Pset_file_locking(how.id(), false, true);
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, how.id()), H5Fclose};
}

Hdf5Parts::Hdf5Parts(std::string path)
    : path_(std::move(path)),
      directories_(Directories(path_)),
      access_(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose) {
  H5Pset_elink_cb(access_.id(), FollowLink, this);
}

std::string Hdf5Parts::ToString() const { return absl::StrCat(path_, ": data set \"", name_, "\""); }

absl::Status Hdf5Parts::Missing(const std::string& part) const {
  return absl::NotFoundError(absl::StrCat(ToString(), " has values in the file ", part,
                                          ", which is missing; keep it beside ", path_,
                                          ", or write all values to one file"));
}

absl::Status Hdf5Parts::CheckInside(const std::string& part) const {
  const std::string real = RealPath(part);
  struct stat about;
  const auto contains = [&real](const std::string& directory) {
    return !directory.empty() && absl::StartsWith(real, directory);
  };
  if (std::none_of(directories_.begin(), directories_.end(), contains)) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToString(), " has values in the file ", part, ", which is not in the directory of ", path_,
        ": no others are read, because a data file may name any file of this user; move it there, "
        "or write all values to one file"));
  }
  if (stat(real.c_str(), &about) == 0 && S_ISREG(about.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(ToString(), " has values in ", part, ", which is not a regular file"));
}

// Does what the library does: it tries one place after another, until it can open a file there.
absl::StatusOr<std::string> Hdf5Parts::Resolve(const std::string& parent, const std::string& part) const {
  std::vector<std::string> places;
  if (absl::StartsWith(part, "/")) places.push_back(part);
  const std::string name = places.empty() ? part : part.substr(part.rfind('/') + 1);
  places.push_back(DirectoryOf(parent) + name);
  places.push_back(name);
  places.push_back(DirectoryOf(RealPath(parent)) + name);
  for (const std::string& place : places) {
    if (!Exists(place)) continue;
    RETURN_IF_ERROR(CheckInside(place));
    if (IsHdf5(place)) return place;
  }
  return Missing(part);
}

herr_t Hdf5Parts::FollowLink(const char* parent_file, const char* parent_group, const char* file,
                             const char* object, unsigned* flags, hid_t access, void* parts) {
  auto* const self = static_cast<Hdf5Parts*>(parts);
  self->link_ = self->Resolve(parent_file, file).status();
  return self->link_.ok() ? 0 : -1;
}

absl::StatusOr<Hdf5Handle> Hdf5Parts::Open(hid_t file, const std::string& name) {
  name_ = name;
  opened_.clear();
  bool missing = false;
  return Open(path_, file, name, &missing);
}

absl::StatusOr<Hdf5Handle> Hdf5Parts::Open(const std::string& path, hid_t file, const std::string& name,
                                           bool* missing) {
  link_ = absl::OkStatus();
  const bool exists = H5Lexists(file, name.c_str(), access_.id()) > 0;
  RETURN_IF_ERROR(link_);
  *missing = !exists;
  if (!exists) {
    return absl::NotFoundError(absl::StrCat(path, ": has no data set \"", name,
                                            "\"; data.table.features and data.table.labels name them"));
  }
  Hdf5Handle set(H5Dopen2(file, name.c_str(), access_.id()), H5Dclose);
  RETURN_IF_ERROR(link_);
  if (!set.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": \"", name, "\" is not a data set"));
  RETURN_IF_ERROR(CheckParts(set.id()));
  return set;
}

absl::Status Hdf5Parts::CheckParts(hid_t set) {
  // A link may have led to another file, which names its own parts.
  char path[PATH_MAX] = "";
  const Hdf5Handle file(H5Iget_file_id(set), H5Fclose);
  const Hdf5Handle layout(H5Dget_create_plist(set), H5Pclose);
  if (H5Fget_name(set, path, sizeof path) < 0 || !file.ok() || !layout.ok())
    return absl::InvalidArgumentError(absl::StrCat(ToString(), " is damaged"));
  RETURN_IF_ERROR(CheckInside(path));
  if (H5Pget_layout(layout.id()) == H5D_VIRTUAL) return CheckVirtual(path, file.id(), layout.id());
  return CheckExternal(layout.id());
}

absl::Status Hdf5Parts::CheckVirtual(const std::string& path, hid_t file, hid_t layout) {
  const auto unreadable = [this](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat(ToString(), " is virtual, and ", what, " cannot be read"));
  };
  size_t parts = 0;
  if (H5Pget_virtual_count(layout, &parts) < 0) return unreadable("its parts");
  for (size_t i = 0; i < parts; ++i) {
    const auto text = [&](ssize_t (*get)(hid_t, size_t, char*, size_t), std::string* out) {
      const ssize_t length = get(layout, i, nullptr, 0);
      if (length < 0) return false;
      out->resize(length + 1);
      if (get(layout, i, out->data(), out->size()) < 0) return false;
      out->resize(length);
      return true;
    };
    std::string part, name;
    if (!text(H5Pget_virtual_filename, &part) || !text(H5Pget_virtual_dsetname, &name))
      return unreadable("the name of a part");
    const bool counts = absl::StrContains(part, "%b") || absl::StrContains(name, "%b");
    bool missing = false;
    for (size_t n = 0; n == 0 || (counts && !missing); ++n) {
      const absl::Status status = CheckSource(path, file, Counted(part, n), Counted(name, n), &missing);
      // The library counts until it finds none.
      if (!(counts && missing)) RETURN_IF_ERROR(status);
    }
  }
  return absl::OkStatus();
}

absl::Status Hdf5Parts::CheckSource(const std::string& path, hid_t file, const std::string& part,
                                    const std::string& name, bool* missing) {
  std::string source = path;
  if (part != ".") {
    absl::StatusOr<std::string> resolved = Resolve(path, part);
    *missing = absl::IsNotFound(resolved.status());
    RETURN_IF_ERROR(resolved.status());
    source = *std::move(resolved);
  }
  if (!opened_.emplace(RealPath(source), name).second) return absl::OkStatus();
  if (opened_.size() > kMostSources) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(), " is virtual and has more than ", kMostSources, " sources"));
  }
  if (part == ".") return Open(source, file, name, missing).status();
  const Hdf5Handle other = OpenHdf5File(source);
  *missing = !other.ok();
  return other.ok() ? Open(source, other.id(), name, missing).status() : Missing(part);
}

absl::Status Hdf5Parts::CheckExternal(hid_t layout) const {
  for (int i = 0; i < H5Pget_external_count(layout); ++i) {
    char name[PATH_MAX] = {};
    if (H5Pget_external(layout, i, sizeof name - 1, name, nullptr, nullptr) < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(ToString(), " has values in other files, whose names cannot be read"));
    }
    if (!Exists(name)) return Missing(name);
    RETURN_IF_ERROR(CheckInside(name));
  }
  return absl::OkStatus();
}

}  // namespace catchment
