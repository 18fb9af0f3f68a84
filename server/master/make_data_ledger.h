// The data ledger that a job's consistency asks for.
#ifndef CATCHMENT_SERVER_MASTER_MAKE_DATA_LEDGER_H_
#define CATCHMENT_SERVER_MASTER_MAKE_DATA_LEDGER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "server/master/data_ledger.h"

namespace catchment {

// InvalidArgument for a state that no master can have written: pending samples that lie beyond the next fresh
// one, or twice.
absl::Status CheckMasterState(const v1::MasterState& state);

// The job has its defaults filled in; `from` has passed CheckMasterState, or is the default: the beginning.
std::unique_ptr<DataLedger> MakeDataLedger(const v1::Job& job, uint64_t train_samples,
                                           const v1::MasterState& from);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_MAKE_DATA_LEDGER_H_
