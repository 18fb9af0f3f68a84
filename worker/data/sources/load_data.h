// The sources of samples, one source file each; that of tables is table/table.h. To add a source: a function
// here, its file, and a case of LoadData.
#ifndef CATCHMENT_WORKER_DATA_SOURCES_LOAD_DATA_H_
#define CATCHMENT_WORKER_DATA_SOURCES_LOAD_DATA_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/data_paths.h"
#include "worker/data/dataset.h"

namespace catchment {

// Loads the data of `job`, which is complete and valid (common/job/validate.h), or names no source. Gives up
// with Cancelled when `is_stopped` returns true, which any thread may call.
// Errors: InvalidArgument if the data names no source; those of the source.
absl::StatusOr<DataSets> LoadData(
    const v1::Job& job, const DataPaths& paths, absl::FunctionRef<bool()> is_stopped = [] { return false; });

// Returns the absolute paths of the files from which samples of the training or test set are read while they
// are used: those that are worth a copy on this machine (stage.h). Sources that are read into memory when a
// worker starts have none. Errors: those of finding the files.
absl::StatusOr<std::vector<std::string>> ListFilesInUse(const v1::Data& data, bool test,
                                                        const DataPaths& paths);

// The MNIST handwritten digits (LeCun, Cortes, Burges): 60,000 images of 28 x 28 for training, 10,000 for
// tests.
//
// Reads the four IDX files under their original names, each with or without ".gz", and compares the MD5 of
// their content with the original's. They are looked for in mnist.directory if it is set, otherwise in
// $CATCHMENT_DATA/mnist, $XDG_CACHE_HOME/catchment/mnist and ~/.cache/catchment/mnist; the first folder that
// has one of the files must have all.
// Errors: NotFound with the places that were searched and what to do; those of ReadLabelledImages; DataLoss
// for another content.
absl::StatusOr<DataSets> LoadMnist(const v1::Mnist& mnist, const DataPaths& paths);

// CIFAR-10 (Krizhevsky 2009) in its binary version: records of a label byte and 3 x 32 x 32 pixels.
//
// Source: https://www.cs.toronto.edu/~kriz/cifar.html
//
// The samples are 3 x 32 x 32, with 10 classes, normalised by channel. The files are, each gzipped or not:
// data_batch_1.bin to data_batch_5.bin, as many as there are, or train.bin; test_batch.bin, or test.bin.
// Errors: NotFound if there is none, with the places that were searched; DataLoss for a damaged file;
// InvalidArgument for a file that is not a sequence of records, or a label that is not a class, with file and
// record.
absl::StatusOr<DataSets> LoadCifar10(const v1::Cifar10& cifar10, const DataPaths& paths);

// A data set that needs no file: digits that the program draws.
//
// Sample i of a part (training or test) with its label is a function of (seed, part, i) alone, the same on
// every machine; the two parts are different streams, so no test digit is a training digit, and a larger set
// begins with the smaller one. A linear model stays below 95 % of the test set, a small convolutional network
// does not.
//
// The samples are 1 x 28 x 28, with 10 classes, normalised with the mean 0.12 and the standard deviation
// 0.253 of the drawn pixels. Errors: InvalidArgument for no samples, or more than 10,000,000 in a part.
absl::StatusOr<DataSets> DrawDigits(const v1::DrawnDigits& options);

// A data set of sequences that needs no file: collisions, each a sequence of particles, in three classes.
//
// A collision has 30 to 90 particles, of which the 50 hardest are kept, the hardest first. Charges follow
// each other: with probability 0.8 a particle's charge follows from the one before, by a rule of the class
// (0: it stays; 1: -1, 0, 1, -1, ...; 2: the other way round), and otherwise it is drawn afresh. All else is
// drawn in the same way in each class, and so is each charge by itself: at every place the three are equally
// likely, so no sum over particles' features tells classes apart.
//
// Of a particle's 19 features most come from momentum, charge and kind: log pt, eta, cos phi, sin phi, px,
// py, pz, energy, mass, charge, one for each of five kinds (photon, electron, muon, charged hadron, neutral
// hadron), and four of its track (distances, isolation, quality), which are noise. They are scaled to
// about 1. After the last particle there are zeros.
//
// Sample i of a part (training or test) is a function of (seed, part, i) alone; a larger set begins with the
// smaller.
//
// `options` must be complete and valid.
DataSets GenerateEvents(const v1::GeneratedEvents& options);

// A data set of large images that needs no file and no memory: each is drawn when it is copied out.
//
//   value(c, y, x) = tint_c cos(2 pi (u x + v y) / size + phase) + noise
//
// (u, v) are the class's own, whole numbers; tint and phase the sample's, noise uniform in +-1 for each
// value. Sample i of a part (training or test) is a function of (seed, part, i) alone.
//
// `options` must be complete and valid.
DataSets GenerateImages(const v1::GeneratedImages& options);

// A user's JPEG images in a directory for each class, as data.image_folder says.
//
// Lists the directories and looks at each image's first and last bytes (CheckJpeg). An image is read, decoded
// and resized whenever it is used (jpeg.h, resize.h), and an error of its file is that of the read. Files
// whose names begin with ._, which macOS adds to archives, are left out. Without data.image_folder.test the
// test set has no samples. Errors: NotFound with the places that were searched; InvalidArgument for a file in
// place of a directory, no classes, another number of classes than the job's, a class without images, a test
// set with other classes, fewer images than batch_size, or more than 2^32 - 1; those of BadFiles
// (bad_files.h) for directories that cannot be listed, broken symbolic links, and images that are not JPEG or
// cannot be read.
absl::StatusOr<DataSets> LoadImageFolder(const v1::Job& job, const DataPaths& paths,
                                         absl::FunctionRef<bool()> is_stopped);

// Returns the absolute paths of the training or test set's images. Errors: those of finding them.
absl::StatusOr<std::vector<std::string>> ListImageFolder(const v1::ImageFolder& folder, bool test,
                                                         const DataPaths& paths);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_SOURCES_LOAD_DATA_H_
