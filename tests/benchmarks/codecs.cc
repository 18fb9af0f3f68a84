// Measures the speed of encoding and decoding: see the usage.
#include <glog/logging.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/codec/codec.h"
#include "common/codec/push_encoder.h"
#include "tests/benchmarks/benchmark.h"

namespace catchment {
namespace {

constexpr int64_t kBlock = (1 << 20) / sizeof(float);  // Job.block_kib's default
constexpr size_t kPiece = 16 << 10;
constexpr int64_t kInMemory = 16 << 20;  // values
constexpr int64_t kInCache = 16 << 10;
constexpr int64_t kPerMeasurement = 32 << 20;

struct Case {
  std::string name;
  v1::Compression compression;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto codec : {v1::Compression::FLOAT32, v1::Compression::BFLOAT16, v1::Compression::FLOAT16,
                           v1::Compression::INT8, v1::Compression::E2M1, v1::Compression::E3M0}) {
    v1::Compression compression;
    compression.set_push(codec);
    cases.push_back({v1::Compression::Codec_Name(codec), compression});
  }
  for (const float fraction : {0.1f, 0.01f, 0.001f}) {
    v1::Compression compression;
    compression.set_push(v1::Compression::TOP_K);
    compression.set_top_k_fraction(fraction);
    cases.push_back({absl::StrCat("TOP_K ", fraction), compression});
  }
  return cases;
}

// The values, payloads and copies that all cases work on.
struct Memory {
  explicit Memory(int64_t n) : gradient(n), decoded(n), payloads(4 * n) {
    Random random(1);
    for (float& value : gradient) value = static_cast<float>(0.01 * random.Normal());
  }
  int64_t n() const { return gradient.size(); }

  std::vector<float> gradient, decoded;
  std::vector<char> payloads;  // 4 bytes a value: TOP_K of at most a half
};

using BlockPass = std::function<void(int64_t begin, int64_t n)>;

double ProcessorNanoseconds() {
  timespec time;
  CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

// Nanoseconds a value.
double Time(const Memory& memory, const BlockPass& pass) {
  const double start = ProcessorNanoseconds();
  for (int64_t done = 0; done < kPerMeasurement; done += memory.n()) {
    for (int64_t begin = 0; begin < memory.n(); begin += kBlock) {
      pass(begin, std::min(kBlock, memory.n() - begin));
    }
  }
  return (ProcessorNanoseconds() - start) / kPerMeasurement;
}

// Copies `bytes_per_value` of each block.
BlockPass Memcpy(const void* from, void* to, double bytes_per_value) {
  const auto bytes = [bytes_per_value](int64_t values) {
    return static_cast<size_t>(bytes_per_value * values);
  };
  return [=](int64_t begin, int64_t n) {
    std::memcpy(static_cast<char*>(to) + bytes(begin), static_cast<const char*>(from) + bytes(begin),
                bytes(n));
  };
}

// One case's way there and back.
class Subject {
 public:
  Subject(const Case& c, Memory* memory)
      : memory_(*memory), encoder_(c.compression, memory->n()), scales_(memory->n() / kBlock + 1) {}

  const Codec& codec() const { return encoder_.codec(); }

  void Encode(int64_t begin, int64_t n) {
    scales_[begin / kBlock] =
        encoder_.Encode(begin, absl::MakeConstSpan(memory_.gradient).subspan(begin, n), 1, Payload(begin));
  }

  void Decode(int64_t begin, int64_t n) {
    const size_t size = codec().PayloadBytes(n);
    pieces_.clear();
    for (size_t at = 0; at < size; at += kPiece) {
      pieces_.emplace_back(Payload(begin) + at, std::min(kPiece, size - at));
    }
    const auto finite = codec().Decode(PayloadView(pieces_, 0, size), scales_[begin / kBlock],
                                       absl::MakeSpan(memory_.decoded).subspan(begin, n));
    CHECK(finite.ok() && *finite) << finite.status();
  }

 private:
  char* Payload(int64_t begin) {
    return memory_.payloads.data() + codec().PayloadBytes(kBlock) * (begin / kBlock);
  }

  Memory& memory_;
  PushEncoder encoder_;
  std::vector<float> scales_;
  std::vector<absl::string_view> pieces_;
};

class Codecs final : public Benchmark {
 public:
  Codecs() {
    for (const Case& c : Cases()) codecs_.push_back(c.name);
  }

  void AddFlags(FlagSet* flags) override {
    AddNames(flags, "codec", &codecs_, "Only these codecs.");
    flags->AddInt("rounds", "N", 1, &rounds_, "Measurements of each figure. Default 9.");
  }

  absl::Status Run(const std::string&, std::vector<Row>* rows) override {
    for (const int64_t n : {kInMemory, kInCache}) {
      Memory memory(n);
      for (const Case& c : Cases()) {
        if (std::find(codecs_.begin(), codecs_.end(), c.name) != codecs_.end())
          MeasureBothWays(c, &memory, rows);
      }
    }
    return absl::OkStatus();
  }

 private:
  void MeasureBothWays(const Case& c, Memory* memory, std::vector<Row>* rows) {
    Subject subject(c, memory);
    const double payload = static_cast<double>(subject.codec().PayloadBytes(kBlock)) / kBlock;
    const double residual = HasErrorFeedback(c.compression.push()) ? 8 : 0;
    const auto measure = [&](const char* direction, double bytes, const void* from, void* to,
                             const BlockPass& pass) {
      const double copied = std::min(bytes / 2, 4.0);
      const BlockPass copy = Memcpy(from, to, copied);
      const auto rates = InTurns(rounds_, {[&] { return 2 * copied / Time(*memory, copy); },
                                           [&] { return bytes / Time(*memory, pass); }});
      const double copy_rate = Median(rates[0]), rate = Median(rates[1]);
      rows->push_back({{"codec", c.name},
                       {"direction", direction},
                       {"from", memory->n() > kBlock ? "memory" : "cache"},
                       {"payload_bytes_per_value", payload},
                       {"ns_per_value", bytes / rate},
                       {"gb_per_s", rate},
                       {"memcpy_gb_per_s", copy_rate},
                       {"ratio_to_memcpy", rate / copy_rate}});
    };
    // Decoding comes after, and finds what encoding has left.
    measure("encode", 4 + payload + residual, memory->gradient.data(), memory->payloads.data(),
            [&](int64_t begin, int64_t n) { subject.Encode(begin, n); });
    measure("decode", 4 + payload, memory->payloads.data(), memory->decoded.data(),
            [&](int64_t begin, int64_t n) { subject.Decode(begin, n); });
  }

  std::vector<std::string> codecs_;
  int rounds_ = 9;
};

}  // namespace

const BenchmarkKind kCodecs = {
    "codecs",
    R"(Times the codecs on one thread, block by block of 1 MiB of float32, as workers and servers use them: encoding
what is pushed (with the residual of error feedback), decoding what came in pieces of 16 KiB, the check for
NaN and infinity included. Beside each, taking turns in the same run, runs memcpy of as many bytes, read and
written together. Figures are medians over the rounds, of the thread's processor time. "memory": 64 MiB of
values, one block after the other. "cache": one block of 64 KiB again and again.

GB/s (1e9 bytes) counts what is read and written: 4 bytes a value, the payload, and for encoding with error
feedback 8 more for the residual.
)",
    {{"codec", "codec"},
     {"direction", "direction"},
     {"from", "from"},
     {"payload bytes a value", "payload_bytes_per_value", 3},
     {"ns a value", "ns_per_value", 3},
     {"GB/s", "gb_per_s", 1},
     {"memcpy", "memcpy_gb_per_s", 1},
     {"of memcpy", "ratio_to_memcpy", 2}},
    MakeBenchmark<Codecs>};

}  // namespace catchment
