// A job's master for fuzz targets of its calls and its connections.
#ifndef CATCHMENT_TESTS_FUZZ_JOB_SERVER_H_
#define CATCHMENT_TESTS_FUZZ_JOB_SERVER_H_

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/data_sources.h"
#include "common/job/model_shapes.h"
#include "server/edge/listener.h"
#include "server/edge/master_service.h"
#include "server/edge/shard_service.h"
#include "server/edge/standby_service.h"
#include "server/host/master_host.h"
#include "tests/common/base/settable_clock.h"
#include "tests/conformance/jobs.h"
#include "tests/fuzz/input.h"

namespace catchment {

inline constexpr uint64_t kRunId = 0xa1, kInstance = 500;
inline constexpr uint64_t kTrainSamples = 64;
inline constexpr const char* kPresets[] = {"sync", "downpour", "ssp", "easgd"};

inline ParameterLayout LayoutOf(const v1::Job& job) {
  const DataShape data = ShapeOf(job.data());
  return *ParameterLayout::Create(ListTensors(*InferShapes(job.model(), data.input, data.target)), 1, 1000);
}

// The process of a master with a job of one server, which is its own standby.
class JobServer {
 public:
  // `kind`: the preset of the job, and from 128 on outputs. It listens at `address`.
  JobServer(uint8_t kind, const std::string& address)
      : job_(PresetJob(kPresets[kind % std::size(kPresets)], 1,
                       absl::StrCat("batch_size: 16 data { drawn_digits { train_samples: ", kTrainSamples,
                                    " test_samples: 10 } }"))),
        layout_(LayoutOf(job_)),
        shard_(job_, layout_, 0, *MakeContents(job_, layout_, 0, "", nullptr), ""),
        claim_(kInstance),
        store_(job_, layout_, 0),
        standby_service_(&store_),
        shard_service_(
            job_.name(), layout_, shard_.shard(), &claim_,
            [this](const v1::ShardCommand& command) { return shard_.Control(command, clock_.Now()); }) {
    MasterHost::Options options;
    options.job = job_;
    options.credentials = grpc::InsecureChannelCredentials();
    if (kind >= 128) options.out_dir = FuzzDirectory() + "/out";
    options.run_id = kRunId;
    options.first_incarnation = 3000;
    host_ = *MasterHost::Create(options, &layout_, &shard_, &clock_, std::nullopt);
    master_service_ = std::make_unique<MasterService>(host_.get(), &clock_);
    store_.Join(kRunId, 1);
    listener_ = std::make_unique<Listener>(
        *Listener::Open(address, grpc::InsecureServerCredentials(),
                        {master_service_.get(), &shard_service_, &standby_service_}, {}));
    host_->SetAddress(listener_->address());
    CHECK(claim_.Claim(host_->RunAt(listener_->address())).ok());
  }

  ~JobServer() {
    host_->Answer(MakeCall(v1::StopRequest()), [](const absl::StatusOr<v1::Reply>&) {});
    // Members that have not left are lost after a while.
    while (!host_->WaitFor(0.005)) clock_.Advance(20);
    host_->Wait().IgnoreError();
    listener_->Shutdown(0);
    host_.reset();
  }

  const v1::Job& job() const { return job_; }
  const ParameterLayout& layout() const { return layout_; }
  const std::string& address() const { return listener_->address(); }
  void Advance(double seconds) { clock_.Advance(seconds); }

 private:
  SettableClock clock_;
  const v1::Job job_;
  const ParameterLayout layout_;
  ShardHost shard_;
  RunClaim claim_;
  StandbyStore store_;
  StandbyService standby_service_;
  ShardService shard_service_;
  std::unique_ptr<MasterHost> host_;
  std::unique_ptr<MasterService> master_service_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_FUZZ_JOB_SERVER_H_
