// A center that notes what it is asked, and insists on the order that Parameters asks for. What it answers is
// for those who derive from it to say.
#ifndef CATCHMENT_TESTS_WORKER_ALGORITHMS_FAKE_PARAMETERS_H_
#define CATCHMENT_TESTS_WORKER_ALGORITHMS_FAKE_PARAMETERS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "worker/parameters.h"

namespace catchment {

class FakeParameters : public Parameters {
 public:
  void Start(const Operation& operation) final {
    CHECK(!under_way_) << "one operation at a time";
    CHECK_EQ(operation.input.empty(), operation.kind == Operation::kPull);
    CHECK_EQ(operation.output.empty(), operation.kind == Operation::kPush);
    events_.push_back("start");
    operation_ = operation;
    under_way_ = true;
    ready_.assign(operation.input.size(), false);
    missing_ = operation.input.size();
    if (missing_ == 0) result_ = CarryOut(operation_);
  }
  void Ready(Range range) final {
    CHECK(under_way_);
    events_.push_back(absl::StrCat("ready ", range.begin, "-", range.end));
    for (int64_t i = range.begin; i < range.end; ++i) {
      CHECK(!ready_[i]) << "value " << i << " twice";
      ready_[i] = true;
      --missing_;
    }
    if (missing_ == 0) result_ = CarryOut(operation_);
  }
  absl::Status Await(Range range) final {
    CHECK(under_way_);
    events_.push_back(absl::StrCat("await ", range.begin, "-", range.end));
    under_way_ = result_.ok();
    return result_.status();
  }
  absl::StatusOr<Outcome> Finish(int /*fragment*/) final {
    CHECK(under_way_);
    CHECK_EQ(missing_, 0u) << "values are not ready";
    events_.push_back("finish");
    under_way_ = false;
    return result_;
  }

  bool IsDone(int /*fragment*/) const final { return !under_way_ || missing_ == 0; }

  bool in_flight() const { return under_way_; }
  std::vector<std::string> TakeEvents() { return std::exchange(events_, {}); }

 private:
  // As soon as all of the input is ready.
  virtual absl::StatusOr<Outcome> CarryOut(const Operation& operation) = 0;

  Operation operation_;
  bool under_way_ = false;
  std::vector<bool> ready_;
  size_t missing_ = 0;
  absl::StatusOr<Outcome> result_ = Outcome();
  std::vector<std::string> events_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_WORKER_ALGORITHMS_FAKE_PARAMETERS_H_
