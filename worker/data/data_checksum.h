// A checksum of a job's samples, by which runs that were trained on other data are recognized.
#ifndef CATCHMENT_WORKER_DATA_DATA_CHECKSUM_H_
#define CATCHMENT_WORKER_DATA_DATA_CHECKSUM_H_

#include <cstdint>

#include "worker/data/dataset.h"

namespace catchment {

// Returns a number, never 0, that depends on the size of both sets, all classes and targets, and the stored
// values of samples: of all if a set has at most 16 million values, otherwise of 64 equally spaced ones.
// Images that are read from files whenever they are used are not read.
uint64_t DataChecksum(const DataSets& data);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_DATA_CHECKSUM_H_
