#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

constexpr int64_t kSteps = 50, kFeatures = 19;
constexpr int64_t kMinParticles = 30, kMaxParticles = 90;
constexpr int kClasses = 3;
constexpr double kFollows = 0.8;  // the probability that a charge follows from the one before

enum Part : uint64_t { kTrain = 0, kTest = 1 };
enum Kind { kPhoton, kElectron, kMuon, kChargedHadron, kNeutralHadron, kKinds };
constexpr double kMass[kKinds] = {0, 0.000511, 0.1057, 0.1396, 0.4976};  // GeV

Kind DrawKind(int charge, Random* random) {
  if (charge == 0) return random->Uniform() < 0.6 ? kPhoton : kNeutralHadron;
  const double u = random->Uniform();
  return u < 0.15 ? kElectron : u < 0.3 ? kMuon : kChargedHadron;
}

void WriteParticle(double pt, int charge, Random* random, float* out) {
  const Kind kind = DrawKind(charge, random);
  const double eta = std::clamp(1.5 * random->Normal(), -3.0, 3.0);
  const double phi = 6.283185307179586 * random->Uniform();
  const double pz = pt * std::sinh(eta);
  const double energy = std::sqrt(pt * pt + pz * pz + kMass[kind] * kMass[kind]);
  const double values[] = {std::log(pt) / 2,        eta / 1.5,
                           std::cos(phi),           std::sin(phi),
                           pt * std::cos(phi) / 20, pt * std::sin(phi) / 20,
                           std::tanh(pz / 50),      std::log(energy) / 3,
                           kMass[kind] * 4,         static_cast<double>(charge)};
  float* at = std::copy(std::begin(values), std::end(values), out);
  for (int k = 0; k < kKinds; ++k) *at++ = k == kind ? 1.0f : 0.0f;
  while (at < out + kFeatures) *at++ = static_cast<float>(0.3 * random->Normal());
}

void WriteEvent(int label, Random* random, float* out) {
  const auto all = kMinParticles + static_cast<int64_t>(random->Below(kMaxParticles - kMinParticles + 1));
  const int64_t particles = std::min(all, kSteps);
  double pt = 20 + 80 * random->Uniform();
  int state = 0;  // charge + 1
  for (int64_t i = 0; i < particles; ++i, out += kFeatures) {
    const bool follows = i > 0 && random->Uniform() < kFollows;
    state = follows ? (state + label) % kClasses : static_cast<int>(random->Below(3));
    WriteParticle(pt, state - 1, random, out);
    pt *= 0.85 + 0.15 * random->Uniform();
  }
}

Dataset GeneratePart(uint64_t seed, Part part, int64_t samples) {
  std::vector<float> values(samples * kSteps * kFeatures);
  std::vector<int32_t> labels(samples);
  for (int64_t i = 0; i < samples; ++i) {
    Random random(Derive(Derive(seed, part), i));
    labels[i] = static_cast<int32_t>(random.Below(kClasses));
    WriteEvent(labels[i], &random, values.data() + i * kSteps * kFeatures);
  }
  return Dataset(SampleShape::Sequence(kSteps, kFeatures), kClasses,
                 std::make_unique<FloatSamples>(std::move(values), kSteps * kFeatures), std::move(labels));
}

}  // namespace

DataSets GenerateEvents(const v1::GeneratedEvents& options) {
  return {GeneratePart(options.seed(), kTrain, options.train_samples()),
          GeneratePart(options.seed(), kTest, options.test_samples())};
}

}  // namespace catchment
