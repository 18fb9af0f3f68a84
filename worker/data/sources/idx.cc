#include "worker/data/sources/idx.h"

#include <openssl/evp.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "worker/data/gzip_file.h"

namespace catchment {
namespace {

constexpr int64_t kMaxValues = int64_t{1} << 30;
constexpr int64_t kChunk = int64_t{4} << 20;
constexpr uint8_t kUnsignedByte = 0x08;

std::string Hex(const uint8_t* bytes, size_t size) {
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes), size));
}

struct FreeDigest {
  void operator()(EVP_MD_CTX* digest) const { EVP_MD_CTX_free(digest); }
};

// The file's unpacked bytes from first to last, and the MD5 of those that were read.
class ByteStream {
 public:
  explicit ByteStream(const std::string& path) : path_(path), digest_(EVP_MD_CTX_new()) {}

  absl::Status Open() {
    ASSIGN_OR_RETURN(file_, OpenGzipFile(path_));
    if (EVP_DigestInit_ex(digest_.get(), EVP_md5(), nullptr) != 1) {
      return absl::InternalError(
          absl::StrCat(path_, ": cannot be checked, because OpenSSL on this machine refuses MD5"));
    }
    return absl::OkStatus();
  }

  // Reads up to `size` bytes and returns how many; fewer only at the end of the file.
  absl::StatusOr<int64_t> Read(uint8_t* out, int64_t size) {
    const int got = gzread(file_.get(), out, static_cast<unsigned>(size));
    int error = Z_OK;
    const char* text = gzerror(file_.get(), &error);
    if (error == Z_ERRNO) return absl::InternalError(absl::StrCat(path_, ": ", std::strerror(errno)));
    if (error == Z_BUF_ERROR) {
      return absl::DataLossError(absl::StrCat(path_, ": its gzip stream is cut short"));
    }
    if (got < 0 || error != Z_OK) {
      return absl::DataLossError(absl::StrCat(path_, ": its gzip stream is damaged: ", text));
    }
    EVP_DigestUpdate(digest_.get(), out, got);
    return got;
  }

  std::string Md5() {
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(digest_.get(), digest, &size);
    return Hex(digest, size);
  }

 private:
  const std::string path_;
  GzipFile file_;
  std::unique_ptr<EVP_MD_CTX, FreeDigest> digest_;
};

absl::Status CheckMagic(const std::string& path, int rank, const uint8_t magic[4]) {
  const uint8_t expected[4] = {0, 0, kUnsignedByte, static_cast<uint8_t>(rank)};
  if (std::equal(magic, magic + 4, expected)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": begins with ", Hex(magic, 4), ", expected ",
                                                 Hex(expected, 4), ", an IDX file of unsigned bytes with ",
                                                 rank, rank == 1 ? " dimension" : " dimensions"));
}

absl::StatusOr<std::vector<int64_t>> ReadHeader(const std::string& path, int rank, ByteStream* stream) {
  std::vector<uint8_t> header(4 + 4 * rank);
  ASSIGN_OR_RETURN(const int64_t got, stream->Read(header.data(), header.size()));
  if (got >= 4) {
    RETURN_IF_ERROR(CheckMagic(path, rank, header.data()));
  }
  if (got < static_cast<int64_t>(header.size())) {
    return absl::DataLossError(
        absl::StrCat(path, ": is cut short: ", got, " bytes, and the header alone is ", header.size()));
  }
  std::vector<int64_t> dimensions;
  for (size_t i = 4; i < header.size(); i += 4) {
    dimensions.push_back(int64_t{header[i]} << 24 | header[i + 1] << 16 | header[i + 2] << 8 | header[i + 3]);
  }
  return dimensions;
}

absl::StatusOr<int64_t> CountValues(const std::string& path, const std::vector<int64_t>& dimensions) {
  int64_t values = 1;
  for (int64_t dimension : dimensions) {
    if (dimension == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is empty, its header says ", DimensionsToString(dimensions)));
    }
    // A dimension is below 2^32 and values at most 2^30, so the product cannot overflow.
    values = std::min(values * dimension, kMaxValues + 1);
  }
  if (values > kMaxValues) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": its header says ", DimensionsToString(dimensions),
                                                   ", and at most ", kMaxValues, " values are read"));
  }
  return values;
}

// Asks for one byte more than `size`, so that what follows the values, also in a gzip stream, is seen.
absl::StatusOr<std::vector<uint8_t>> ReadValues(const std::string& path, const IdxArray& header, int64_t size,
                                                ByteStream* stream) {
  const std::string announced = absl::StrCat("its header says ", DimensionsToString(header.dimensions),
                                             ", that is ", size, " bytes of values");
  std::vector<uint8_t> values;
  values.reserve(std::min(size + 1, 16 * kChunk));
  for (int64_t read = 0;;) {
    const int64_t wanted = std::min(kChunk, size + 1 - read);
    values.resize(read + wanted);
    ASSIGN_OR_RETURN(const int64_t got, stream->Read(values.data() + read, wanted));
    read += got;
    if (read > size)
      return absl::DataLossError(absl::StrCat(path, ": has extra bytes after its values: ", announced));
    if (got == wanted) continue;
    if (read < size) {
      return absl::DataLossError(absl::StrCat(path, ": is cut short: ", announced, ", and it holds ", read));
    }
    values.resize(size);
    return values;
  }
}

}  // namespace

std::string DimensionsToString(const std::vector<int64_t>& dimensions) {
  return absl::StrJoin(dimensions, "x");
}

absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int rank) {
  ByteStream stream(path);
  RETURN_IF_ERROR(stream.Open());
  IdxArray array;
  ASSIGN_OR_RETURN(array.dimensions, ReadHeader(path, rank, &stream));
  ASSIGN_OR_RETURN(const int64_t size, CountValues(path, array.dimensions));
  ASSIGN_OR_RETURN(array.values, ReadValues(path, array, size, &stream));
  array.md5 = stream.Md5();
  return array;
}

absl::StatusOr<LabelledImages> ReadLabelledImages(const std::string& images_path,
                                                  const std::string& labels_path, int num_classes) {
  ASSIGN_OR_RETURN(IdxArray images, ReadIdx(images_path, 3));
  ASSIGN_OR_RETURN(IdxArray labels, ReadIdx(labels_path, 1));
  if (images.dimensions[0] != labels.dimensions[0]) {
    return absl::InvalidArgumentError(absl::StrCat(images_path, " holds ", images.dimensions[0],
                                                   " images, and ", labels_path, " ", labels.dimensions[0],
                                                   " labels; they are not a matching pair"));
  }
  const auto bad = std::find_if(labels.values.begin(), labels.values.end(),
                                [=](int label) { return label >= num_classes; });
  if (bad != labels.values.end()) {
    return absl::InvalidArgumentError(absl::StrCat(labels_path, ": label ", bad - labels.values.begin(),
                                                   " is ", static_cast<int>(*bad), "; labels are 0 to ",
                                                   num_classes - 1));
  }
  return LabelledImages{std::move(images), std::move(labels)};
}

}  // namespace catchment
