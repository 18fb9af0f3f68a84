#include "worker/data/jpeg.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <vector>

// jpeglib.h needs the FILE and size_t of <cstdio> before it.
#include <jerror.h>
#include <jpeglib.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_access.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

constexpr int64_t kMaxPixels = int64_t{1} << 27;
// A small file can have scans without end that each take as long as the whole image.
constexpr int kMaxScans = 500;
constexpr char kReplace[] =
    "; replace it by another image (--resume needs the same number), "
    "or delete it for all workers and start the job anew";

// The functions that libjpeg calls about errors, and the place that it returns to after one.
struct Handler {
  jpeg_error_mgr manager;  // first: libjpeg has its address
  jpeg_progress_mgr progress;
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

Handler* HandlerOf(j_common_ptr info) { return reinterpret_cast<Handler*>(info->err); }

[[noreturn]] void Exit(j_common_ptr info) {
  Handler* const handler = HandlerOf(info);
  handler->manager.format_message(info, handler->message);
  std::longjmp(handler->back, 1);
}

// Warnings after which pixels may be wrong are errors, and the others are harmless.
void EmitMessage(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_ADOBE_XFORM:
      return;
    default:
      Exit(info);
  }
}

void CountScans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  Handler* const handler = HandlerOf(info);
  std::snprintf(handler->message, sizeof handler->message, "it has more than %d scans", kMaxScans);
  std::longjmp(handler->back, 1);
}

// Returns "a PNG", or another name of a format of images that is not JPEG; empty if none is recognized.
const char* OtherFormat(absl::string_view file) {
  if (absl::StartsWith(file, "\x89PNG")) return "a PNG";
  if (absl::StartsWith(file, "GIF8")) return "a GIF";
  if (absl::StartsWith(file, "BM")) return "a BMP";
  if (absl::StartsWith(file, "RIFF")) return "a WebP";
  if (absl::StartsWith(file, "II*") || absl::StartsWith(file, "MM")) return "a TIFF";
  return "";
}

absl::Status CheckFormat(absl::string_view file, const std::string& path) {
  if (file.empty()) return absl::DataLossError(absl::StrCat(path, ": is empty", kReplace));
  if (absl::StartsWith(file, "\xff\xd8")) return absl::OkStatus();
  const absl::string_view other = OtherFormat(file);
  if (other.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": is not a JPEG image", kReplace));
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": is ", other,
                   " image, not a JPEG; convert it, or delete it for all workers and start the job anew"));
}

// Returns true if the compressed data of the first image are followed by the mark of its end. The marks of an
// image within the segments before the data, such as a preview, do not count.
bool HasEnd(absl::string_view file) {
  constexpr absl::string_view kEnd("\xff\xd9", 2);
  constexpr char kData = '\xda';
  size_t at = 2;
  while (at + 4 <= file.size() && file[at] == '\xff' && file[at + 1] != kData) {
    const size_t high = static_cast<uint8_t>(file[at + 2]), low = static_cast<uint8_t>(file[at + 3]);
    at += file[at + 1] == '\xff' ? 1 : 2 + (high << 8 | low);
  }
  return file.find(kEnd, at) != absl::string_view::npos;
}

// Returns x * y / 255, rounded.
int Product(int x, int y) {
  const int product = x * y + 128;
  return ((product >> 8) + product) >> 8;
}

// `cmyk` is inverted: 255 means that there is no ink.
void ToRgb(const uint8_t* cmyk, int64_t width, uint8_t* rgb) {
  for (int64_t i = 0; i < width; ++i, cmyk += 4, rgb += 3) {
    const int key = cmyk[3];
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(key - Product(255 - cmyk[c], key));
  }
}

class Decoder {
 public:
  Decoder() {
    info_.err = jpeg_std_error(&handler_.manager);
    handler_.manager.error_exit = Exit;
    handler_.manager.emit_message = EmitMessage;
    handler_.progress.progress_monitor = CountScans;
  }
  ~Decoder() { jpeg_destroy_decompress(&info_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // The functions below return false after an error of libjpeg, which message() then has. They have no
  // objects with destructors, because libjpeg leaves them with a jump.
  bool ReadHeader(absl::string_view file) {
    if (setjmp(handler_.back) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &handler_.progress;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = is_cmyk() ? JCS_CMYK : JCS_RGB;
    return true;
  }
  bool Start() {
    if (setjmp(handler_.back) != 0) return false;
    jpeg_start_decompress(&info_);
    return true;
  }
  bool ReadRow(uint8_t* row) {
    if (setjmp(handler_.back) != 0) return false;
    jpeg_read_scanlines(&info_, &row, 1);
    return true;
  }

  const char* message() const { return handler_.message; }
  int64_t width() const { return info_.image_width; }
  int64_t height() const { return info_.image_height; }
  bool is_cmyk() const { return info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK; }

 private:
  jpeg_decompress_struct info_ = {};
  Handler handler_ = {};
};

}  // namespace

absl::Status DecodeJpeg(absl::string_view file, const std::string& path,
                        absl::FunctionRef<int64_t(int64_t width, int64_t height)> begin,
                        absl::FunctionRef<void(int64_t y, const uint8_t* rgb)> row) {
  RETURN_IF_ERROR(CheckFormat(file, path));
  Decoder decoder;
  const auto damaged = [&] {
    return absl::DataLossError(absl::StrCat(path, ": is damaged (", decoder.message(), ")", kReplace));
  };
  if (!decoder.ReadHeader(file)) return damaged();
  const int64_t width = decoder.width(), height = decoder.height();
  if (width * height > kMaxPixels) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has ", width, " x ", height, " pixels; at most ",
                                                   kMaxPixels, " are read. Make it smaller", kReplace));
  }
  if (!decoder.Start()) return damaged();
  const int64_t rows = begin(width, height);
  std::vector<uint8_t> read(width * (decoder.is_cmyk() ? 4 : 3)),
      converted(decoder.is_cmyk() ? width * 3 : 0);
  for (int64_t y = 0; y < rows; ++y) {
    if (!decoder.ReadRow(read.data())) return damaged();
    if (decoder.is_cmyk()) ToRgb(read.data(), width, converted.data());
    row(y, decoder.is_cmyk() ? converted.data() : read.data());
  }
  return absl::OkStatus();
}

absl::Status CheckJpeg(const std::string& path, const std::string& name) {
  const auto with_remedy = [](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(status.message(), kReplace));
  };
  const absl::StatusOr<int> opened = OpenFile(path, O_RDONLY);
  if (!opened.ok()) return with_remedy(opened.status());
  const int file = *opened;
  char first[16], last[2];
  const ssize_t begin = pread(file, first, sizeof first, 0);
  const off_t size = lseek(file, 0, SEEK_END);
  const bool ended =
      size >= 4 && pread(file, last, sizeof last, size - 2) == 2 && last[0] == '\xff' && last[1] == '\xd9';
  const absl::Status status =
      begin < 0 ? absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path)) : absl::OkStatus();
  close(file);
  if (!status.ok()) return with_remedy(status);
  RETURN_IF_ERROR(CheckFormat({first, static_cast<size_t>(begin)}, name));
  if (ended) return absl::OkStatus();
  const absl::StatusOr<std::string> content = ReadFile(path);
  if (!content.ok()) return with_remedy(content.status());
  if (HasEnd(*content)) return absl::OkStatus();
  return DecodeJpeg(
      *content, name, [](int64_t, int64_t height) { return height; }, [](int64_t, const uint8_t*) {});
}

}  // namespace catchment
