// What most source files of the project include, parsed once for a whole build: //common:prelude compiles it
// ahead, and //common/bazel:cc.bzl puts it in front of every source file. A source file still includes what
// it uses, since the sanitizers' builds do without it.
//
// Nothing of gRPC: its headers define an object in each file that includes them, which then has to be linked
// with gRPC.
#ifndef CATCHMENT_COMMON_PRELUDE_H_
#define CATCHMENT_COMMON_PRELUDE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "proto/wire.pb.h"

#endif  // CATCHMENT_COMMON_PRELUDE_H_
