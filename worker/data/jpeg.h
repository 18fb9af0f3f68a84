// Decodes JPEG files with libjpeg-turbo.
#ifndef CATCHMENT_WORKER_DATA_JPEG_H_
#define CATCHMENT_WORKER_DATA_JPEG_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace catchment {

// Decodes the image in `file`, the content of the file `path`. First calls `begin` with its size, which
// returns the number of rows that are wanted, from the top; then `row` with each of these rows, as width x 3
// values of red, green and blue. Gray becomes three equal values. CMYK, which is taken as Adobe writes it,
// inverted, becomes RGB by Pillow's formula. The pixels are those of Pillow with the same version of the
// library.
//
// Errors: DataLoss for a file that is damaged or cut short; InvalidArgument for another format, or an image
// of more than 2^27 pixels. They name the file, the cause and the remedy. Threads: any number may decode at
// the same time.
absl::Status DecodeJpeg(absl::string_view file, const std::string& path,
                        absl::FunctionRef<int64_t(int64_t width, int64_t height)> begin,
                        absl::FunctionRef<void(int64_t y, const uint8_t* rgb)> row);

// Checks a file without decoding it, so that files that cannot be used are found before training: that it can
// be read, that it begins as a JPEG image, and that it ends as one. An image without the mark of its end,
// which may be cut short, is decoded. `name` is that of the file in errors.
//
// Errors: those of OpenFile and DecodeJpeg.
absl::Status CheckJpeg(const std::string& path, const std::string& name);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_JPEG_H_
