// A worker of TestServers as a raw stream: it sends its Hello, and then arbitrary requests.
#ifndef CATCHMENT_TESTS_SERVER_EDGE_TRAIN_PEER_H_
#define CATCHMENT_TESTS_SERVER_EDGE_TRAIN_PEER_H_

#include <vector>

#include "common/wire/protocol.h"
#include "proto/wire.pb.h"
#include "tests/server/edge/raw_stream.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {

inline v1::Hello HelloOf(const ParameterLayout& layout, uint32_t worker) {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_job("test");
  hello.set_fingerprint(layout.fingerprint());
  hello.set_num_shards(layout.num_shards());
  hello.set_worker(worker);
  hello.set_incarnation(IncarnationOf(worker));
  hello.set_run_id(kRunId);
  hello.set_token(TestToken(hello.incarnation()));
  return hello;
}

class Peer : public RawStream {
 public:
  Peer(const TestServers& servers, uint32_t worker)
      : RawStream(servers.addresses()[0],
                  &static_cast<const std::string&>(HelloOf(servers.layout(), worker).SerializeAsString())) {}
};

// Returns a pull of one block.
inline v1::Block PullOf(uint32_t block) {
  v1::Block pull;
  pull.set_operation(v1::Block::PULL);
  pull.set_block(block);
  return pull;
}

inline v1::Block PushOf(uint64_t sequence, uint32_t block, int64_t values, float value) {
  v1::Block push;
  push.set_operation(v1::Block::PUSH_PULL);
  push.set_sequence(sequence);
  push.set_block(block);
  push.set_steps(sequence);
  push.set_samples(1);
  const std::vector<float> gradient(values, value);
  push.set_payload(reinterpret_cast<const char*>(gradient.data()), values * sizeof(float));
  return push;
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_EDGE_TRAIN_PEER_H_
