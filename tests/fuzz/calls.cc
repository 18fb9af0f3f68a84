// Every call of every service of a master, over gRPC: with its roles, tokens and limits, in any order, from
// whoever reaches the port. Whatever is called, the job can be stopped in order afterwards.
//
// Input: the kind of job; then calls: the method, the metadata, and the messages, which are protobuf's bytes
// of which those fields that name a registration or the run are mostly replaced by right ones.
#include <glog/logging.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/job_text.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "common/wire/token.h"
#include "proto/health.pb.h"
#include "server/edge/permission.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/job_server.h"

namespace catchment {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMaxCalls = 60;
// Real time for which a call is awaited; streams stay open until then.
constexpr double kCallSeconds = 0.02;
void Set(Message* message, const char* name, uint64_t value) {
  const FieldDescriptor* const field = message->GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || field->is_repeated()) return;
  const Reflection& values = *message->GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
    values.SetUInt32(message, field, static_cast<uint32_t>(value));
  } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
    values.SetUInt64(message, field, value);
  }
}

class Test {
 public:
  explicit Test(FuzzInput in)
      : in_(in),
        server_(in_.Byte(), absl::StrCat("unix:", FuzzDirectory(), "/socket")),
        stub_(grpc::CreateChannel(server_.address(), grpc::InsecureChannelCredentials())) {}

  void Run() {
    for (int i = 0; i < kMaxCalls && !in_.empty(); ++i) Step();
    // It still answers.
    v1::JobStatus status;
    CHECK(status.ParseFromString(Call("catchment.v1.MasterService.GetStatus", {std::string()}, 60)));
    CHECK_EQ(status.job(), server_.job().name());
  }

 private:
  void Step() {
    const std::string& method = std::next(RolesByMethod().begin(), in_.Below(RolesByMethod().size()))->first;
    const uint8_t choice = in_.Byte();
    if (choice % 16 == 0) server_.Advance(choice / 16.0);
    const auto* const called = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(method);
    CHECK(called != nullptr) << method;
    std::vector<std::string> messages;
    for (int i = called->client_streaming() ? choice / 64 : 0; i >= 0; --i) {
      messages.push_back(MessageOf(*called->input_type(), choice % 8 != 1));
    }
    if (method.ends_with("Train")) AddHello<v1::Hello>(kHelloKey);
    if (method.ends_with("Replicate")) AddHello<v1::StandbyHello>(kStandbyHelloKey);
    const std::string reply = Call(method, messages, kCallSeconds);
    if (method.ends_with("MasterService.Register")) Remember(reply);
  }

  // Returns a message's bytes, of which the names of the caller and of the run are right if `fits`.
  std::string MessageOf(const Descriptor& type, bool fits) {
    const std::unique_ptr<Message> message(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
    const std::string bytes(in_.Text());
    if (!message->ParsePartialFromString(bytes)) return bytes;
    if (fits) Correct(message.get());
    // Servers trust each other: one that sends commands in the master's name can keep the job from ending.
    if (&type == v1::ShardCommand::descriptor()) Set(message.get(), "generation", 0);
    return message->SerializePartialAsString();
  }

  void Correct(Message* message) {
    const v1::RegisterReply member =
        members_.empty() ? v1::RegisterReply() : members_[in_.Below(members_.size())];
    Set(message, "worker", member.worker());
    Set(message, "incarnation", member.incarnation());
    token_ = member.token();
    Set(message, "run_id", kRunId);
    Set(message, "protocol_version", kProtocolVersion);
    Set(message, "fingerprint", server_.layout().fingerprint());
    Set(message, "job_fingerprint", JobFingerprint(server_.job()));
    Set(message, "num_shards", 1);
    Set(message, "num_servers", 1);
    Set(message, "server_instance", kInstance);
    Set(message, "epoch", 1);
    if (message->GetDescriptor() == v1::Hello::descriptor()) {
      static_cast<v1::Hello*>(message)->set_job(server_.job().name());
      static_cast<v1::Hello*>(message)->set_token(token_);
    } else if (message->GetDescriptor() == v1::ShardCommand::descriptor()) {
      static_cast<v1::ShardCommand*>(message)->mutable_run()->set_id(kRunId);
    } else if (message->GetDescriptor() == v1::RegisterRequest::descriptor()) {
      CorrectRegistration(static_cast<v1::RegisterRequest*>(message));
    }
  }

  void CorrectRegistration(v1::RegisterRequest* request) {
    request->set_train_samples(kTrainSamples);
    request->clear_tensors();
    for (const TensorSpec& tensor : server_.layout().tensors()) {
      v1::TensorInfo* const info = request->add_tensors();
      info->set_name(tensor.name);
      info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    }
  }

  template <typename Hello>
  void AddHello(const char* key) {
    metadata_.emplace_back(key, MessageOf(*Hello::descriptor(), in_.Byte() != 0));
  }

  void Remember(const std::string& reply) {
    v1::RegisterReply member;
    if (!reply.empty() && member.ParseFromString(reply)) members_.push_back(member);
  }

  // Makes a call and returns the bytes of its first answer; empty if there is none.
  std::string Call(const std::string& method, const std::vector<std::string>& messages, double seconds) {
    const size_t dot = method.rfind('.');
    const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(seconds);
    if (!token_.empty()) context->AddMetadata(kTokenMetadata, token_);
    for (const auto& [key, value] : metadata_) context->AddMetadata(key, value);
    token_.clear();
    metadata_.clear();
    grpc::CompletionQueue queue;
    const auto call = stub_.PrepareCall(
        context.get(), absl::StrCat("/", method.substr(0, dot), "/", method.substr(dot + 1)), &queue);
    const auto await = [&queue] {
      void* tag;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    bool open = await();
    for (const std::string& message : messages) {
      if (!open) break;
      const grpc::Slice slice(message);
      call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
      open = await();
    }
    if (open) {
      call->WritesDone(nullptr);
      open = await();
    }
    std::string first;
    grpc::ByteBuffer answer;
    for (bool is_first = true; open; is_first = false) {
      call->Read(&answer, nullptr);
      open = await();
      grpc::Slice slice;
      if (open && is_first && answer.DumpToSingleSlice(&slice).ok())
        first.assign(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    await();
    queue.Shutdown();
    return first;
  }

  FuzzInput in_;
  JobServer server_;
  grpc::GenericStub stub_;
  std::vector<v1::RegisterReply> members_;
  // Credentials of the next call.
  std::string token_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test(catchment::FuzzInput(data, size)).Run();
  return 0;
}
