// Trains a job's model in one process, without servers: the job's data with its augmentation,
// minibatches and epochs, and SGD with momentum 0.9 (coupled weight decay, the learning rate along half a
// cosine) or Adam. Prints the test accuracy after each epoch, and the samples per second of training.
//
//   CATCHMENT_DATA=... train_alone JOB THREADS
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/job/initializer.h"
#include "common/job/job_text.h"
#include "common/job/validate.h"
#include "glog/logging.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/data/augmentation.h"
#include "worker/data/epoch_order.h"
#include "worker/data/sources/load_data.h"
#include "worker/model/network.h"

namespace catchment {
namespace {

constexpr double kPi = 3.141592653589793;

class Trainer {
 public:
  Trainer(const v1::Job& job, int threads)
      : job_(job),
        data_(*LoadData(job, DataPathsFromEnvironment())),
        augmentation_(job.data().augmentation(), data_.train.input_shape(), job.seed()),
        order_(job.seed(), data_.train.size()),
        inputs_(job.batch_size() * data_.train.input_shape().size()),
        original_(data_.train.input_shape().size()),
        labels_(job.batch_size()),
        ids_(job.batch_size()) {
    auto network = Network::Create(job.model(), data_.train.input_shape(), data_.train.target(),
                                   {.max_batch_size = static_cast<int>(job.batch_size()), .seed = job.seed()},
                                   MakeCpuBackend({.threads = threads}));
    CHECK(network.ok()) << network.status();
    network_ = *std::move(network);
    const int64_t parameters = network_->num_parameters();
    weights_.resize(parameters);
    gradient_.resize(parameters);
    first_.resize(parameters);
    second_.resize(parameters);
    InitializeParameters(network_->layers(), job.seed(), {0, parameters}, weights_.data());
  }

  void Run() {
    for (uint64_t epoch = 0; epoch < job_.epochs(); ++epoch) {
      const SteadyClock clock;
      const double start = clock.Now();
      const Score train = TrainEpoch(epoch);
      const double seconds = clock.Now() - start;
      const Score test = Evaluate();
      std::printf("epoch %llu: training loss %.4f, test accuracy %.4f, %.0f samples/s\n",
                  static_cast<unsigned long long>(epoch + 1), train.loss_sum / train.samples,
                  static_cast<double>(test.correct) / test.samples, train.samples / seconds);
      std::fflush(stdout);
    }
  }

 private:
  Score TrainEpoch(uint64_t epoch) {
    const std::vector<uint32_t>& order = order_.order(epoch);
    Score score;
    for (int64_t begin = 0; begin < data_.train.size(); begin += job_.batch_size()) {
      const int64_t n = std::min<int64_t>(job_.batch_size(), data_.train.size() - begin);
      for (int64_t i = 0; i < n; ++i) Load(i, order[begin + i], Derive(epoch, order[begin + i]));
      score += network_->Train(weights_, Batch(n), absl::MakeSpan(gradient_));
      Update();
    }
    return score;
  }

  void Load(int64_t i, int64_t index, uint64_t id) {
    data_.train.CopyInput(index, original_.data());
    augmentation_.Apply(id, original_.data(), inputs_.data() + i * original_.size());
    labels_[i] = data_.train.label(index);
    ids_[i] = id;
  }

  Minibatch Batch(int64_t n) const {
    return {inputs_.data(), labels_.data(), ids_.data(), static_cast<int>(n)};
  }

  void Update() {
    const double steps = static_cast<double>(job_.epochs()) *
                         std::ceil(static_cast<double>(data_.train.size()) / job_.batch_size());
    const double rate = job_.optimizer().learning_rate() * (1 + std::cos(kPi * step_ / steps)) / 2;
    ++step_;
    job_.optimizer().kind() == v1::Optimizer::ADAM ? Adam(rate) : Sgd(rate);
  }

  void Sgd(double rate) {
    const auto eta = static_cast<float>(rate);
    const float decay = job_.optimizer().weight_decay();
    for (size_t i = 0; i < weights_.size(); ++i) {
      first_[i] = 0.9f * first_[i] + gradient_[i] + decay * weights_[i];
      weights_[i] -= eta * first_[i];
    }
  }

  void Adam(double rate) {
    const auto eta =
        static_cast<float>(rate * std::sqrt(1 - std::pow(0.999, step_)) / (1 - std::pow(0.9, step_)));
    for (size_t i = 0; i < weights_.size(); ++i) {
      first_[i] = 0.9f * first_[i] + 0.1f * gradient_[i];
      second_[i] = 0.999f * second_[i] + 0.001f * gradient_[i] * gradient_[i];
      weights_[i] -= eta * first_[i] / (std::sqrt(second_[i]) + 1e-8f);
    }
  }

  // The next minibatch of a set, as it is; statistics of the first training samples.
  bool Next(const Dataset& data, int64_t end, int64_t* next, Minibatch* batch) {
    const int64_t n = std::min<int64_t>(job_.batch_size(), end - *next);
    for (int64_t i = 0; i < n; ++i, ++*next) {
      data.CopyInput(*next, inputs_.data() + i * original_.size());
      labels_[i] = data.label(*next);
    }
    *batch = Batch(n);
    return n > 0;
  }

  Score Evaluate() {
    int64_t next = 0;
    network_->EstimateStatistics(weights_, [&](Minibatch* batch) {
      return Next(data_.train, std::min<int64_t>(1024, data_.train.size()), &next, batch);
    });
    Score score;
    Minibatch batch;
    for (next = 0; Next(data_.test, data_.test.size(), &next, &batch);)
      score += network_->Evaluate(weights_, batch);
    return score;
  }

  const v1::Job job_;
  const DataSets data_;
  const Augmentation augmentation_;
  EpochOrder order_;
  std::unique_ptr<Network> network_;
  std::vector<float> inputs_, original_;
  std::vector<int32_t> labels_;
  std::vector<uint64_t> ids_;
  std::vector<float> weights_, gradient_, first_, second_;
  int64_t step_ = 0;
};

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  CHECK_EQ(argc, 3) << "usage: train_alone JOB THREADS";
  const auto loaded = catchment::LoadJob(argv[1]);
  CHECK(loaded.ok()) << loaded.status();
  const auto job = catchment::FillDefaultsAndValidate(*loaded);
  CHECK(job.ok()) << job.status();
  catchment::Trainer(*job, std::atoi(argv[2])).Run();
}
