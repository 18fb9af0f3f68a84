#include "worker/attach/attached_model.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SharedMemoryTest, AProgramCannotChangeItsSize) {
  const auto memory = SharedMemory::Create("weights", 4096);
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (const off_t bytes : {0, 8192}) EXPECT_EQ(ftruncate(memory->fd(), bytes), -1) << bytes;
  EXPECT_EQ(memory->data()[4095], 0);
}

// More than two parts of 1 MiB.
constexpr int64_t kLarge = 600000;

uint64_t Word(const char* at) { return *reinterpret_cast<const uint64_t*>(at); }

// Notes the ranges in order; `before` is called first.
class Recorder final : public PassObserver {
 public:
  void BeforeForward(Range range) override {
    if (before) before(range);
    forward.push_back(range);
  }
  void AfterBackward(Range range) override { backward.push_back(range); }

  std::function<void(Range)> before;
  std::vector<Range> forward, backward;
};

// A model whose program is this test.
class AttachedModelTest : public testing::Test {
 protected:
  AttachedModelTest() { Make({{"a.weight", {kLarge}}, {"a.bias", {3}}}); }
  ~AttachedModelTest() override { CloseProgram(); }

  void Make(std::vector<TensorSpec> tensors) {
    size_ = 0;
    for (const TensorSpec& tensor : tensors) size_ += tensor.size();
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    program_ = fds[1];
    auto weights = SharedMemory::Create("weights", 4 * size_);
    auto gradient = SharedMemory::Create("gradient", 4 * size_);
    auto plan = PlanBoard::Create(8);
    ASSERT_TRUE(weights.ok() && gradient.ok() && plan.ok());
    weights_ = weights->floats();
    gradient_ = gradient->floats();
    const auto look = [this](bool closed) {
      return closed ? absl::InternalError("the program is gone") : why_.ok() ? absl::OkStatus() : why_;
    };
    model_.emplace(AttachedModel::Options{.job = "job",
                                          .tensors = std::move(tensors),
                                          .train_samples = 100,
                                          .test_samples = 10,
                                          .batch_size = 8,
                                          .seed = 5},
                   ProgramChannels{std::make_unique<ProgramLink>(fds[0], look), *std::move(weights),
                                   *std::move(gradient), *std::move(plan)},
                   nullptr);
  }

  void CloseProgram() {
    if (program_ >= 0) close(program_);
    program_ = -1;
  }
  void SendBytes(const std::string& bytes) const {
    ASSERT_EQ(send(program_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  void Send(const v1::FromProgram& message) const { SendBytes(message.SerializeAsString()); }
  v1::ToProgram Receive() const {
    std::string packet(ProgramLink::kLargestPacket, '\0');
    const ssize_t size = recv(program_, packet.data(), packet.size(), 0);
    v1::ToProgram message;
    EXPECT_TRUE(size > 0 && message.ParseFromArray(packet.data(), static_cast<int>(size)));
    return message;
  }

  static v1::FromProgram Hello() {
    v1::FromProgram message;
    message.mutable_hello()->set_version(1);
    message.mutable_hello()->set_device("a test");
    Add("a.weight", {kLarge}, &message);
    Add("a.bias", {3}, &message);
    return message;
  }
  static void Add(const std::string& name, const std::vector<int64_t>& shape, v1::FromProgram* hello) {
    v1::AttachedTensor* const tensor = hello->mutable_hello()->add_tensors();
    tensor->set_name(name);
    tensor->mutable_shape()->Add(shape.begin(), shape.end());
  }
  static v1::FromProgram Final(uint64_t begin) {
    v1::FromProgram message;
    message.mutable_final()->set_begin(begin);
    return message;
  }
  static v1::FromProgram Done(uint64_t step) {
    v1::FromProgram message;
    message.mutable_done()->set_step(step);
    message.mutable_done()->set_loss(0.25);
    message.mutable_done()->set_correct(2);
    return message;
  }

  static void AddMetric(const std::string& name, double sum, uint64_t count, v1::FromProgram* done) {
    v1::FromProgram::Metric* const metric = done->mutable_done()->add_metrics();
    metric->set_name(name);
    metric->set_sum(sum);
    metric->set_count(count);
  }

  // Plans a step of three samples and trains it; the program has sent its messages before.
  Score Train() {
    std::vector<float> weights(size_, 1.0f);
    taken_.assign(size_, -1.0f);
    return Train(weights, absl::MakeSpan(taken_));
  }
  Score Train(absl::Span<const float> weights, absl::Span<float> gradient) {
    const std::vector<uint32_t> samples = {7, 8, 9};
    EXPECT_TRUE(model_->Plan(samples).ok());
    Minibatch batch;
    batch.samples = 3;
    return model_->Train(weights, batch, gradient, &recorder_);
  }
  // The messages of a step of a program that keeps its weights.
  v1::ToProgram::Begin KeptStep(uint64_t step) {
    Send(Done(step));
    EXPECT_EQ(Train({}, {}).samples, 3) << model_->status();
    return Receive().begin();
  }
  void Greet(uint32_t version) {
    v1::FromProgram hello = Hello();
    hello.mutable_hello()->set_version(version);
    hello.mutable_hello()->set_keeps_weights(true);
    Send(hello);
    ASSERT_TRUE(model_->AwaitHello().ok());
    v1::Contribution contribution;
    contribution.mutable_pseudo_gradient()->set_blend(0.5f);
    model_->KeepWeights({{{0, 16}, {32, size_}}, {{16, 32}}}, contribution);
    ASSERT_TRUE(model_->Welcome(0).ok());
  }
  std::string TrainError() {
    const Score score = Train();
    EXPECT_EQ(score.samples, 0);
    EXPECT_FALSE(model_->status().ok());
    return std::string(model_->status().message());
  }
  std::string HelloError(const v1::FromProgram& hello) {
    Send(hello);
    return std::string(model_->AwaitHello().message());
  }

  int64_t size_ = 0;
  int program_ = -1;
  absl::Span<float> weights_, gradient_;  // as the program sees them
  absl::Status why_;                      // that the program is not to be waited for
  Recorder recorder_;
  std::vector<float> taken_;  // the last gradient
  std::optional<AttachedModel> model_;
};

TEST_F(AttachedModelTest, WelcomesAProgramWithTheJobsModelOnce) {
  Send(Hello());
  ASSERT_TRUE(model_->AwaitHello().ok());
  EXPECT_EQ(model_->device(), "program: a test");
  ASSERT_TRUE(model_->Welcome(3).ok());
  ASSERT_TRUE(model_->Welcome(4).ok());
  const v1::ToProgram::Welcome welcome = Receive().welcome();
  EXPECT_EQ(welcome.job(), "job");
  EXPECT_EQ(welcome.worker(), 3u);
  EXPECT_EQ(welcome.batch_size(), 8u);
  EXPECT_EQ(welcome.seed(), 5u);
  EXPECT_FALSE(welcome.evaluates());
  EXPECT_TRUE(model_->Finish(absl::OkStatus()).ok());
  EXPECT_TRUE(Receive().has_stop());
}

TEST_F(AttachedModelTest, TensorsMayComeInSeveralMessages) {
  v1::FromProgram first = Hello(), second = Hello();
  first.mutable_hello()->mutable_tensors()->RemoveLast();
  first.mutable_hello()->set_more(true);
  second.mutable_hello()->mutable_tensors()->erase(second.hello().tensors().begin());
  Send(first);
  Send(second);
  const absl::Status status = model_->AwaitHello();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(AttachedModelTest, NamesWhatDiffersFromTheJob) {
  v1::FromProgram hello = Hello();
  hello.mutable_hello()->mutable_tensors(1)->set_shape(0, 4);
  EXPECT_THAT(HelloError(hello), HasSubstr("tensor 1: expected a.bias 3, got a.bias 4"));
  hello = Hello();
  hello.mutable_hello()->set_version(3);
  EXPECT_THAT(HelloError(hello), HasSubstr("speaks version 3 of the protocol"));
  hello = Hello();
  hello.mutable_hello()->set_train_samples(99);
  EXPECT_THAT(HelloError(hello), HasSubstr("99 training samples and the job's data.external 100"));
  hello = Hello();
  hello.mutable_hello()->set_test_samples(11);
  EXPECT_THAT(HelloError(hello), HasSubstr("11 test samples"));
  EXPECT_THAT(HelloError(Done(1)), HasSubstr("sent done where hello was expected"));
}

TEST_F(AttachedModelTest, WeightsComeInOrderAndGradientsLeaveFromTheEnd) {
  // Each part of the weights is in the shared memory before the next is asked for, and not before it is here.
  recorder_.before = [this](Range range) {
    EXPECT_EQ(weights_[range.begin], 0.0f);
    EXPECT_TRUE(range.begin == 0 || weights_[range.begin - 1] == 1.0f);
  };
  std::iota(gradient_.begin(), gradient_.end(), 0.0f);
  Send(Final(size_ - 2));
  Send(Final(size_ - 2));
  Send(Done(1));
  const Score score = Train();
  ASSERT_TRUE(model_->status().ok()) << model_->status();
  EXPECT_EQ(score.samples, 3);
  EXPECT_EQ(score.loss_sum, 0.75);
  EXPECT_EQ(score.correct, 2);
  EXPECT_TRUE(std::equal(taken_.begin(), taken_.end(), gradient_.begin()));

  const int64_t part = 262144;
  EXPECT_THAT(recorder_.forward, ElementsAre(Range{0, part}, Range{part, 2 * part}, Range{2 * part, size_}));
  EXPECT_THAT(recorder_.backward,
              ElementsAre(Range{size_ - 2, size_}, Range{size_ - 2 - part, size_ - 2},
                          Range{size_ - 2 - 2 * part, size_ - 2 - part}, Range{0, size_ - 2 - 2 * part}));
  EXPECT_EQ(Receive().begin().step(), 1u);
  for (const int64_t values : {part, 2 * part, size_}) {
    EXPECT_EQ(Receive().here().values(), static_cast<uint64_t>(values));
  }
}

TEST_F(AttachedModelTest, StepsThatWereSkippedAreNotBegun) {
  const std::vector<uint32_t> samples = {1};
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(model_->Plan(samples).ok());
  model_->SkipPlanned();
  Send(Done(5));
  Train();
  ASSERT_TRUE(model_->status().ok()) << model_->status();
  EXPECT_EQ(Receive().begin().step(), 5u);
}

TEST_F(AttachedModelTest, DescribesTheStepThatBegins) {
  model_->DescribeStep(0.25, 3, 0.5);
  Send(Done(1));
  Train();
  const v1::ToProgram::Begin begin = Receive().begin();
  EXPECT_EQ(begin.step(), 1u);
  EXPECT_EQ(begin.progress(), 0.25);
  EXPECT_EQ(begin.epoch(), 3u);
  EXPECT_EQ(begin.learning_rate(), 0.5);
  EXPECT_FALSE(begin.restarted());
}

TEST_F(AttachedModelTest, SaysOnceThatTheWorkerHasRegisteredAgain) {
  const auto restarted = [&](uint64_t step) {
    Send(Done(step));
    Train();
    EXPECT_TRUE(model_->status().ok()) << model_->status();
    v1::ToProgram message = Receive();
    while (!message.has_begin()) message = Receive();
    return message.begin().restarted();
  };
  ASSERT_TRUE(model_->Welcome(3).ok());
  EXPECT_FALSE(restarted(1));
  ASSERT_TRUE(model_->Welcome(4).ok());
  EXPECT_TRUE(restarted(2));
  EXPECT_FALSE(restarted(3));
}

TEST_F(AttachedModelTest, MetricsAreThoseOfTheLastStep) {
  v1::FromProgram with = Done(1);
  AddMetric("clipped/share", 1.5, 3, &with);
  Send(with);
  Train();
  ASSERT_TRUE(model_->status().ok()) << model_->status();
  ASSERT_EQ(model_->metrics().size(), 1);
  EXPECT_EQ(model_->metrics()[0].name(), "clipped/share");
  EXPECT_EQ(model_->metrics()[0].sum(), 1.5);
  EXPECT_EQ(model_->metrics()[0].count(), 3u);
  Send(Done(2));
  Train();
  EXPECT_EQ(model_->metrics().size(), 0);
}

TEST_F(AttachedModelTest, RefusesAMetricThatHasNoNameOrIsNotANumber) {
  const auto error = [this](const std::string& name, double sum, uint64_t count) {
    Make({{"w", {3}}});
    v1::FromProgram done = Done(1);
    AddMetric(name, sum, count, &done);
    Send(done);
    std::string error = TrainError();
    CloseProgram();
    return error;
  };
  for (const std::string& name : {std::string(), std::string(101, 'x'), std::string("a\nb")})
    EXPECT_THAT(error(name, 1, 1), HasSubstr("names have 1 to 100 bytes and no control characters"));
  EXPECT_THAT(error("norm", NAN, 1), HasSubstr("the program's metric norm has the sum nan of 1 values"));
  EXPECT_THAT(error("norm", 1, 0), HasSubstr("the program's metric norm has the sum 1 of 0 values"));
}

TEST_F(AttachedModelTest, RefusesTooManyMetrics) {
  v1::FromProgram done = Done(1);
  for (int i = 0; i < 65; ++i) AddMetric(std::to_string(i), 1, 1, &done);
  Send(done);
  EXPECT_EQ(TrainError(), "the program has 65 metrics in one step; at most 64 are accepted");
}

TEST_F(AttachedModelTest, ProgramMayLeaveInsteadOfEndingAStep) {
  v1::FromProgram left;
  left.mutable_left();
  Send(left);
  EXPECT_EQ(TrainError(), "the program has left the job");
  EXPECT_TRUE(model_->left());
}

TEST_F(AttachedModelTest, AProgramThatKeepsItsWeightsIsToldOnlyOfExchanges) {
  Greet(/*version=*/2);
  const v1::ToProgram::Welcome welcome = Receive().welcome();
  EXPECT_TRUE(welcome.keeps_weights());
  EXPECT_EQ(welcome.blend(), 0.5);
  const v1::ToProgram::Part first = Receive().part(), second = Receive().part();
  EXPECT_THAT(first.bounds(), ElementsAre(0, 16, 32, size_));
  EXPECT_EQ(second.fragment(), 1u);
  EXPECT_THAT(second.bounds(), ElementsAre(16, 32));
  EXPECT_FALSE(welcome.elastic());
  LocalWeights* const kept = model_->memory().kept;
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->received().data(), model_->received().data());

  kept->Restart();
  v1::ToProgram::Begin begin = KeptStep(1);
  EXPECT_TRUE(begin.exchange().all());
  EXPECT_FALSE(begin.restarted()) << "there is nothing to forget";
  EXPECT_FALSE(KeptStep(2).has_exchange());

  kept->Use(1);
  kept->Use(0);
  v1::FromProgram sent;
  sent.mutable_sent();
  Send(sent);
  gradient_[20] = 7;
  ASSERT_TRUE(kept->Write(1).ok());
  EXPECT_EQ(kept->sent()[20], 7);
  const v1::ToProgram::Send send = Receive().send();
  EXPECT_EQ(send.fragment(), 1u);
  EXPECT_THAT(send.exchange().arrived(), ElementsAre(1, 0));
  kept->Use(1);
  EXPECT_THAT(KeptStep(3).exchange().arrived(), ElementsAre(1)) << "what has been said is said once";

  kept->Use(0);
  kept->Restart();
  begin = KeptStep(4);
  EXPECT_TRUE(begin.exchange().all() && begin.restarted());
  EXPECT_THAT(begin.exchange().arrived(), ElementsAre());

  Send(Done(4));
  EXPECT_THAT(std::string(kept->Write(0).message()), HasSubstr("sent done where sent was expected"));
  EXPECT_FALSE(model_->status().ok());
}

TEST_F(AttachedModelTest, AnOlderProgramGetsTheWeightsInEachStep) {
  Greet(/*version=*/1);
  EXPECT_FALSE(Receive().welcome().keeps_weights());
  EXPECT_EQ(model_->memory().kept, nullptr);
  EXPECT_TRUE(model_->memory().weights.empty()) << "it has copies";
}

TEST_F(AttachedModelTest, VectorsOfTheModelAreNotCopied) {
  v1::FromProgram hello = Hello();
  hello.mutable_hello()->set_version(2);
  Send(hello);
  ASSERT_TRUE(model_->AwaitHello().ok());
  ASSERT_TRUE(model_->Welcome(0).ok());
  const ModelMemory memory = model_->memory();
  EXPECT_EQ(memory.kept, nullptr);
  ASSERT_EQ(memory.weights.data(), weights_.data());
  ASSERT_EQ(memory.gradient.data(), gradient_.data());
  // An algorithm fetches the weights while the program is told of them.
  recorder_.before = [&](Range range) { std::fill_n(&memory.weights[range.begin], range.size(), 3.0f); };
  std::fill(gradient_.begin(), gradient_.end(), 5.0f);
  Send(Done(1));
  EXPECT_EQ(Train(memory.weights, memory.gradient).samples, 3);
  EXPECT_EQ(weights_.back(), 3.0f);
  EXPECT_EQ(memory.gradient.front(), 5.0f);
  EXPECT_EQ(recorder_.backward.back().begin, 0);
}

TEST_F(AttachedModelTest, StopSaysWhetherTheFinalWeightsAreThere) {
  const auto read = [this](absl::Status status) {
    return model_->SetResult([&](absl::Span<float> weights) {
      std::fill(weights.begin(), weights.end(), 2.0f);
      return status;
    });
  };
  EXPECT_TRUE(read(absl::OkStatus()).ok());
  EXPECT_TRUE(model_->Finish(absl::OkStatus()).ok());
  EXPECT_TRUE(Receive().stop().result());
  EXPECT_EQ(weights_.back(), 2.0f);
  EXPECT_FALSE(read(absl::UnavailableError("no server")).ok());
  EXPECT_TRUE(model_->Finish(absl::OkStatus()).ok());
  EXPECT_FALSE(Receive().stop().result());
}

TEST_F(AttachedModelTest, StepAfterTheFinalWeightsReplacesThem) {
  EXPECT_TRUE(model_->SetResult([](absl::Span<float>) { return absl::OkStatus(); }).ok());
  Send(Done(1));
  Train();
  EXPECT_TRUE(model_->Finish(absl::OkStatus()).ok());
  v1::ToProgram message = Receive();
  while (!message.has_stop()) message = Receive();
  EXPECT_FALSE(message.stop().result());
}

TEST_F(AttachedModelTest, RefusesToPlanOverASlotThatMayStillBeRead) {
  const std::vector<uint32_t> samples = {1};
  int planned = 0;
  while (model_->Plan(samples).ok()) ASSERT_LT(++planned, 1000);
  EXPECT_EQ(planned, static_cast<int>(PlanBoard::kSlots) - 1);
  EXPECT_TRUE(absl::IsResourceExhausted(model_->Plan(samples)));
}

TEST_F(AttachedModelTest, BreaksThePassOffWhereTheProgramFails) {
  v1::FromProgram failed;
  failed.mutable_failed()->set_why("ValueError: no");
  Send(Final(size_ - 2));
  Send(failed);
  EXPECT_EQ(TrainError(), "the program failed: ValueError: no");
  EXPECT_THAT(recorder_.backward, ElementsAre(Range{size_ - 2, size_}));
  // It stays so.
  Send(Done(2));
  EXPECT_EQ(TrainError(), "the program failed: ValueError: no");
}

TEST_F(AttachedModelTest, BreaksThePassOffWhereTheProgramIsGone) {
  std::thread program([this] {
    while (!Receive().has_here()) {
    }
    CloseProgram();
  });
  EXPECT_EQ(TrainError(), "the program is gone");
  program.join();
}

TEST_F(AttachedModelTest, DoesNotWaitForAProgramThatIsNotToBeWaitedFor) {
  why_ = absl::CancelledError("enough");
  EXPECT_EQ(TrainError(), "enough");
}

TEST_F(AttachedModelTest, RefusesWhatIsNotAMessage) {
  SendBytes("a line that the program printed\n");
  EXPECT_THAT(TrainError(), HasSubstr("32 bytes that are not a message of proto/attach.proto"));
}

TEST_F(AttachedModelTest, RefusesAnotherStepAndGradientsOutOfOrder) {
  Send(Done(2));
  EXPECT_THAT(TrainError(), HasSubstr("step 2 is done, and step 1 is under way"));
  CloseProgram();
  Make({{"a", {10}}});
  Send(Final(5));
  Send(Final(6));
  EXPECT_THAT(TrainError(), HasSubstr("final from value 6 on, but reported it earlier from 5"));
}

TEST_F(AttachedModelTest, ScoresATestSet) {
  v1::FromProgram scored;
  scored.mutable_scored()->set_samples(10);
  scored.mutable_scored()->set_loss_sum(2.5);
  scored.mutable_scored()->set_correct(7);
  for (const auto& [name, value] :
       {std::pair("n.running_mean", 1.0f), {"n.running_mean", 2.0f}, {"n.running_var", 3.0f}}) {
    v1::FromProgram statistic;
    statistic.mutable_statistic()->set_name(name);
    statistic.mutable_statistic()->add_values(value);
    Send(statistic);
  }
  Send(scored);
  const std::vector<float> weights(size_, 2.0f);
  const absl::StatusOr<Score> score = model_->ScoreTestSet(weights);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->samples, 10);
  EXPECT_EQ(score->loss_sum, 2.5);
  EXPECT_EQ(score->correct, 7);
  ASSERT_EQ(model_->statistics().size(), 2u);
  EXPECT_EQ(model_->statistics()[0].name, "n.running_mean");
  EXPECT_THAT(model_->statistics()[0].values, ElementsAre(1.0f, 2.0f));
  EXPECT_THAT(model_->statistics()[1].values, ElementsAre(3.0f));
  EXPECT_TRUE(Receive().has_evaluate());
  EXPECT_EQ(weights_[size_ - 1], 2.0f);
}

TEST(PlanBoardTest, HasTheLayoutOfTheProtocol) {
  auto board = PlanBoard::Create(3);
  ASSERT_TRUE(board.ok());
  std::string bytes(64 + PlanBoard::kSlots * 32, '\0');
  for (uint64_t step = 1; step <= PlanBoard::kSlots + 1; ++step) {
    board->Add(std::vector<uint32_t>{static_cast<uint32_t>(step), 7});
  }
  ASSERT_EQ(pread(board->fd(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(Word(&bytes[0]), PlanBoard::kSlots + 1);
  EXPECT_EQ(Word(&bytes[8]), 0u);
  EXPECT_EQ(Word(&bytes[16]), PlanBoard::kSlots);
  EXPECT_EQ(Word(&bytes[24]), 32u);
  EXPECT_EQ(Word(&bytes[64]), PlanBoard::kSlots + 1);  // in place of step 1
  EXPECT_EQ(Word(&bytes[64 + 8]), 2u);
  EXPECT_EQ(Word(&bytes[64 + 16]), (PlanBoard::kSlots + 1) | 7ull << 32);
  EXPECT_EQ(Word(&bytes[64 + 32]), 2u);
  board->End(4);
  ASSERT_EQ(pread(board->fd(), bytes.data(), 16, 0), 16);
  EXPECT_EQ(Word(&bytes[8]), 5u);
}

}  // namespace
}  // namespace catchment
