// What a job's data.table must be like. Its files are for workers to open.
#ifndef CATCHMENT_COMMON_JOB_CHECK_TABLE_H_
#define CATCHMENT_COMMON_JOB_CHECK_TABLE_H_

#include "common/job/problems.h"
#include "proto/job.pb.h"

namespace catchment {

void CheckTable(const v1::Table& table, Problems* problems);

// Whether it says what samples and targets are, so that a model can be checked against them.
bool SaysItsShape(const v1::Table& table);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CHECK_TABLE_H_
