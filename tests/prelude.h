// The headers that most tests include. //tests:prelude precompiles them once per build, and
// //common/bazel:cc.bzl includes them in front of every test. Tests must still include what they use, because
// builds with sanitizers do not use the precompiled header.
//
// gRPC's headers are not among them: they define an object in each file that includes them, which must then
// be linked with gRPC.
#ifndef CATCHMENT_TESTS_PRELUDE_H_
#define CATCHMENT_TESTS_PRELUDE_H_

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
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "proto/wire.pb.h"

#endif  // CATCHMENT_TESTS_PRELUDE_H_
