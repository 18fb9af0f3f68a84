// Generated protobuf messages over gRPC's synchronous API, with the channel settings that Catchment uses.
#include <glog/logging.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "tests/benchmarks/wire_peers.h"
#include "tests/benchmarks/wire_reference.grpc.pb.h"

namespace catchment {
namespace {

constexpr int64_t kBlockValues = 1 << 18;  // 1 MiB

class Service final : public v1::WireReference::Service {
 public:
  explicit Service(int64_t values) : weights_(values, 0.0f) {}

  grpc::Status Exchange(grpc::ServerContext*, const v1::Vector* gradient, v1::Vector* weights) override {
    Apply(*gradient, weights);
    return grpc::Status::OK;
  }

  grpc::Status ExchangeBlocks(grpc::ServerContext*,
                              grpc::ServerReaderWriter<v1::Vector, v1::Vector>* stream) override {
    v1::Vector gradient, weights;
    while (stream->Read(&gradient)) {
      Apply(gradient, &weights);
      stream->Write(weights);
    }
    return grpc::Status::OK;
  }

 private:
  void Apply(const v1::Vector& gradient, v1::Vector* weights) {
    const int n = gradient.values_size();
    weights->set_begin(gradient.begin());
    weights->mutable_values()->Resize(n, 0);
    MutexLock lock(&mu_);
    ApplySgd(gradient.values().data(), n, weights_.data() + gradient.begin(),
             weights->mutable_values()->mutable_data());
  }

  Mutex mu_;
  std::vector<float> weights_;  // changed under mu_
};

class ProtobufServer final : public WireServer {
 public:
  explicit ProtobufServer(const PeerOptions& options) : service_(options.values) {
    grpc::ServerBuilder builder;
    SetTrainingOptions(&builder);
    int port = 0;
    builder.AddListeningPort(GrpcAddress(options), *ServerCredentials(CertificateOf(options, "server")),
                             &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    CHECK(server_ != nullptr) << options.address;
    address_ = options.transport == "unix" ? options.address : absl::StrCat("127.0.0.1:", port);
  }
  ~ProtobufServer() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const override { return address_; }

 private:
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

class UnaryWorker final : public WireWorker {
 public:
  explicit UnaryWorker(const PeerOptions& options)
      : stub_(v1::WireReference::NewStub(
            Connect(GrpcAddress(options), *ClientCredentials(CertificateOf(options, "worker"))))) {}

  void RoundTrip(absl::Span<const float> gradient, absl::Span<float> weights) override {
    gradient_.mutable_values()->Assign(gradient.begin(), gradient.end());
    grpc::ClientContext context;
    const grpc::Status status = stub_->Exchange(&context, gradient_, &weights_);
    CHECK(status.ok()) << status.error_message();
    std::copy(weights_.values().begin(), weights_.values().end(), weights.begin());
  }

 private:
  const std::unique_ptr<v1::WireReference::Stub> stub_;
  v1::Vector gradient_, weights_;
};

class StreamWorker final : public WireWorker {
 public:
  explicit StreamWorker(const PeerOptions& options)
      : stub_(v1::WireReference::NewStub(
            Connect(GrpcAddress(options), *ClientCredentials(CertificateOf(options, "worker"))))),
        stream_(stub_->ExchangeBlocks(&context_)),
        writer_([this] { Write(); }) {}
  ~StreamWorker() override {
    {
      MutexLock lock(&mu_);
      ending_ = true;
      changed_.Notify();
    }
    writer_.join();
    context_.TryCancel();
    stream_->Finish();
  }

  void RoundTrip(absl::Span<const float> gradient, absl::Span<float> weights) override {
    {
      MutexLock lock(&mu_);
      to_write_ = gradient;
      changed_.Notify();
    }
    for (size_t begin = 0; begin < weights.size(); begin += kBlockValues) {
      CHECK(stream_->Read(&answer_));
      std::copy(answer_.values().begin(), answer_.values().end(), weights.begin() + answer_.begin());
    }
  }

 private:
  void Write() {
    while (true) {
      absl::Span<const float> gradient;
      {
        MutexLock lock(&mu_);
        changed_.Wait(&mu_, [this] { return ending_ || !to_write_.empty(); });
        if (ending_) return;
        std::swap(gradient, to_write_);
      }
      for (size_t begin = 0; begin < gradient.size(); begin += kBlockValues) {
        const auto block = gradient.subspan(begin, kBlockValues);
        block_.set_begin(begin);
        block_.mutable_values()->Assign(block.begin(), block.end());
        CHECK(stream_->Write(block_));
      }
    }
  }

  const std::unique_ptr<v1::WireReference::Stub> stub_;
  grpc::ClientContext context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::Vector, v1::Vector>> stream_;
  v1::Vector answer_;  // of the reader
  v1::Vector block_;   // of the writer
  Mutex mu_;
  CondVar changed_;
  absl::Span<const float> to_write_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread writer_;
};

}  // namespace

std::unique_ptr<WireServer> MakeProtobufServer(const PeerOptions& options) {
  return std::make_unique<ProtobufServer>(options);
}

std::unique_ptr<WireWorker> MakeUnaryWorker(const PeerOptions& options) {
  return std::make_unique<UnaryWorker>(options);
}

std::unique_ptr<WireWorker> MakeStreamWorker(const PeerOptions& options) {
  return std::make_unique<StreamWorker>(options);
}

}  // namespace catchment
