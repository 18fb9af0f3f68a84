// Help for users who give a name that does not exist.
//
// Threads: pure functions.
#ifndef CATCHMENT_COMMON_JOB_FIELD_HELP_H_
#define CATCHMENT_COMMON_JOB_FIELD_HELP_H_

#include <string>

namespace catchment {

// Returns the path of the job's field that a flag of this name would set, "optimizer.learning_rate" of "lr"
// or "learning_rate"; several with " or " between them; empty if there is none.
std::string FieldOfFlag(const std::string& flag);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_FIELD_HELP_H_
