#include "server/edge/restore_shard.h"

#include <glog/logging.h>

#include <chrono>
#include <thread>
#include <utility>

#include "common/base/growing_pause.h"
#include "common/base/patience.h"
#include "common/base/status_macros.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "proto/standby.grpc.pb.h"
#include "server/shard/replica.h"

namespace catchment {
namespace {

absl::Status Read(v1::StandbyService::Stub* stub, const v1::StandbyHello& hello, const std::string& name,
                  Replica* replica, uint64_t* epoch) {
  grpc::ClientContext context;
  const std::unique_ptr<grpc::ClientReader<v1::StandbyPart>> reader = stub->Restore(&context, hello);
  replica->BeginStream();
  absl::Status fits;
  for (v1::StandbyPart part; fits.ok() && reader->Read(&part);) {
    if (part.has_image()) *epoch = part.image().epoch();
    fits = replica->Add(std::move(part));
  }
  if (!fits.ok()) context.TryCancel();
  const absl::Status status = FromGrpc(reader->Finish(), name);
  RETURN_IF_ERROR(fits);
  RETURN_IF_ERROR(status);
  return replica->complete() ? absl::OkStatus() : absl::UnavailableError("the copy is incomplete");
}

}  // namespace

v1::StandbyHello MakeStandbyHello(const ParameterLayout& layout, int shard, uint64_t run_id, uint64_t epoch) {
  v1::StandbyHello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_fingerprint(layout.fingerprint());
  hello.set_shard(static_cast<uint32_t>(shard));
  hello.set_num_shards(static_cast<uint32_t>(layout.num_shards()));
  hello.set_run_id(run_id);
  hello.set_epoch(epoch);
  return hello;
}

absl::StatusOr<RestoredCopy> RestoreShard(const std::string& address,
                                          const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                          const v1::StandbyHello& hello, const v1::Job& job,
                                          const ParameterLayout& layout, double seconds, const Clock& clock) {
  const std::string name = "standby at " + address;
  Patience patience(seconds);
  const auto stub = v1::StandbyService::NewStub(Connect(address, credentials));
  Replica replica(job, layout, static_cast<int>(hello.shard()));
  GrowingPause pauses;
  while (true) {
    RestoredCopy copy;
    patience.Begin(clock.Now());
    const absl::Status status = Read(stub.get(), hello, name, &replica, &copy.epoch);
    if (status.ok()) {
      copy.master = replica.master();
      copy.evaluations = replica.evaluations();
      copy.contents = replica.TakeContents();
      return copy;
    }
    if (!absl::IsUnavailable(status) || patience.Fail(clock.Now())) return status;
    LOG(WARNING) << status.message() << "; trying again";
    const double pause = pauses.Next();
    patience.Begin(clock.Now(), pause);
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  }
}

}  // namespace catchment
