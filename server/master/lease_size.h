// How many minibatches a lease of asynchronous training has: about a second of the worker's steps, or, of
// more than 100 workers, more seconds, so that all together ask for about 100 leases a second. What a worker
// that is lost has not done goes to others, however large its lease was.
#ifndef CATCHMENT_SERVER_MASTER_LEASE_SIZE_H_
#define CATCHMENT_SERVER_MASTER_LEASE_SIZE_H_

#include <cstdint>

#include "proto/master.pb.h"

namespace catchment {

inline constexpr uint64_t kMostPerLease = 1000;

// Returns the size of the next lease of a worker that has made this progress, from kMinibatchesPerLease
// (server/master/lease_ledger.h) to kMostPerLease; `workers`: members of the job.
uint64_t LeaseSize(const v1::Progress& progress, int workers);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_LEASE_SIZE_H_
