// The files that hold the values of a data set: an HDF5 file may name any others, by external links, virtual
// data sets and external raw files, and the library reads whatever they name, also as raw bytes. Who makes a
// data file would thus read the files of the user who trains with it. Only files in its directory, or below,
// are read.
#ifndef CATCHMENT_WORKER_DATA_TABLE_HDF5_PARTS_H_
#define CATCHMENT_WORKER_DATA_TABLE_HDF5_PARTS_H_

#include <hdf5/serial/hdf5.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

// Closes what HDF5 opened.
class Hdf5Handle {
 public:
  Hdf5Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  ~Hdf5Handle() {
    if (id_ >= 0) close_(id_);
  }
  bool ok() const { return id_ >= 0; }
  hid_t id() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// Opens a file for reading. Negative: the library cannot.
Hdf5Handle OpenHdf5File(const std::string& path);

// Opens data sets of a data file. Threads: not thread-safe.
class Hdf5Parts {
 public:
  // `path` is that of the data file, to which symbolic links may lead; parts are beside either.
  explicit Hdf5Parts(std::string path);

  // Opens a data set of `file`, which is the data file. Its values, and those of all virtual data sets that
  // it consists of, are in files of the directory. Errors, which name the data file, the data set and the
  // part: InvalidArgument for a part outside of the directory; NotFound for a missing part or data set.
  absl::StatusOr<Hdf5Handle> Open(hid_t file, const std::string& name);

 private:
  absl::StatusOr<Hdf5Handle> Open(const std::string& path, hid_t file, const std::string& name,
                                  bool* missing);
  absl::Status CheckParts(hid_t set);
  absl::Status CheckVirtual(const std::string& path, hid_t file, hid_t layout);
  absl::Status CheckSource(const std::string& path, hid_t file, const std::string& part,
                           const std::string& name, bool* missing);
  absl::Status CheckExternal(hid_t layout) const;
  absl::Status CheckInside(const std::string& part) const;
  absl::StatusOr<std::string> Resolve(const std::string& parent, const std::string& part) const;
  static herr_t FollowLink(const char* parent_file, const char* parent_group, const char* file,
                           const char* object, unsigned* flags, hid_t access, void* parts);
  std::string ToString() const;
  absl::Status Missing(const std::string& part) const;

  const std::string path_;
  const std::vector<std::string> directories_;  // with a slash at the end
  Hdf5Handle access_;
  std::string name_;                                      // of the data set that is being opened
  absl::Status link_;                                     // the error of the last external link
  std::set<std::pair<std::string, std::string>> opened_;  // files and data sets
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_HDF5_PARTS_H_
