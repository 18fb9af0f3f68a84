#include "worker/data/batch_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "glog/logging.h"
#include "tests/common/base/settable_clock.h"

namespace catchment {
namespace {

constexpr int kSamples = 10;
constexpr uint64_t kSeed = 3;

// Sample i is the 1 x 2 image (i, 100 + i), its class i.
Dataset TestData() {
  std::vector<uint8_t> pixels, labels(kSamples);
  std::iota(labels.begin(), labels.end(), 0);
  for (uint8_t i = 0; i < kSamples; ++i) pixels.insert(pixels.end(), {i, static_cast<uint8_t>(100 + i)});
  return Dataset({1, 1, 2}, kSamples, {0, 1.0f / 255}, pixels, labels);
}

// Each plan once, then the end.
NextPlan Plans(std::vector<BatchPlan> plans) {
  auto at = std::make_shared<size_t>(0);
  return [plans, at]() -> absl::StatusOr<std::optional<BatchPlan>> {
    if (*at == plans.size()) return std::nullopt;
    return plans[(*at)++];
  };
}

class BatchLoaderTest : public testing::Test {
 protected:
  std::unique_ptr<BatchLoader> MakeLoader(int depth, NextPlan plans, int threads = 1) {
    return std::make_unique<BatchLoader>(&data_, nullptr, EpochOrder(kSeed, kSamples),
                                         BatchLoader::Options{.depth = depth, .threads = threads},
                                         std::move(plans), &clock_);
  }

  // The next batch, which must be there.
  static const LoadedBatch& Take(BatchLoader* loader) {
    const absl::StatusOr<const LoadedBatch*> batch = loader->Next();
    CHECK(batch.ok()) << batch.status();
    CHECK(*batch != nullptr) << "no more batches";
    return **batch;
  }

  void ExpectSamples(const LoadedBatch& batch, const std::vector<Span>& spans) {
    EpochOrder order(kSeed, kSamples);
    int64_t at = 0;
    for (const Span& span : spans) {
      for (uint64_t position = span.begin; position < span.end; ++position, ++at) {
        const uint32_t index = order.order(span.epoch)[position];
        ASSERT_LT(at, batch.samples);
        EXPECT_EQ(batch.labels[at], static_cast<int32_t>(index));
        EXPECT_EQ(batch.sample_ids[at], Derive(span.epoch, index));
        EXPECT_FLOAT_EQ(batch.inputs.data()[2 * at], static_cast<float>(index));
        EXPECT_FLOAT_EQ(batch.inputs.data()[2 * at + 1], static_cast<float>(100 + index));
      }
    }
    EXPECT_EQ(batch.samples, at);
    EXPECT_EQ(batch.inputs.size(), 2 * at);
    EXPECT_EQ(batch.labels.size(), static_cast<size_t>(at));
    EXPECT_EQ(batch.sample_ids.size(), static_cast<size_t>(at));
    EXPECT_EQ(batch.spans, spans);
  }

  const Dataset data_ = TestData();
  const SettableClock clock_;
};

// Memory that is pinned must be let go of before it is freed.
TEST_F(BatchLoaderTest, PinsInputsUntilTheyGrow) {
  struct Pinned final : Pinning {
    Pinned(std::vector<std::string>* events, size_t size) : events(*events), size(size) {
      events->push_back(absl::StrCat("pin ", size));
    }
    ~Pinned() override { events.push_back(absl::StrCat("unpin ", size)); }
    std::vector<std::string>& events;
    const size_t size;
  };
  std::vector<std::string> events;
  {
    BatchLoader loader(&data_, nullptr, EpochOrder(kSeed, kSamples),
                       {.depth = 1,
                        .pin_inputs =
                            [&](absl::Span<const float> inputs) {
                              return std::make_unique<Pinned>(&events, inputs.size());
                            }},
                       Plans({{1, {{0, 0, 3}}}, {2, {{0, 3, 5}}}, {3, {{0, 5, 10}}}}), &clock_);
    for (int i = 0; i < 3; ++i) Take(&loader);
  }
  EXPECT_THAT(events, testing::ElementsAre("pin 6", "unpin 6", "pin 10", "unpin 10"));
}

TEST_F(BatchLoaderTest, LoadsTheSpansOfAPlanInTheirOrder) {
  const std::vector<Span> spans = {{0, 8, 10}, {1, 0, 3}, {4, 5, 6}};
  auto loader = MakeLoader(2, Plans({{42, spans}}));
  const LoadedBatch& batch = Take(loader.get());
  EXPECT_EQ(batch.tag, 42u);
  ExpectSamples(batch, spans);
}

TEST_F(BatchLoaderTest, GivesBatchesInTheOrderOfThePlansAndThenNullForEver) {
  auto loader =
      MakeLoader(3, Plans({{5, {{0, 0, 2}}}, {4, {{0, 2, 4}}}, {9, {{0, 4, 10}}}, {1, {{2, 0, 1}}}}));
  for (uint64_t tag : {5, 4, 9, 1}) EXPECT_EQ(Take(loader.get()).tag, tag);
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<const LoadedBatch*> end = loader->Next();
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(*end, nullptr);
  }
}

TEST_F(BatchLoaderTest, SamplesWithoutContentAreNamedByTheirPositions) {
  constexpr int64_t kMany = 4'000'000'000;  // an order of that length would take 16 GB
  const Dataset data = Dataset::WithoutContent(kMany);
  BatchLoader loader(&data, nullptr, EpochOrder(kSeed, kMany), {.depth = 2},
                     Plans({{1, {{5, kMany - 2, kMany}, {6, 0, 1}}}}), &clock_);
  const LoadedBatch& batch = Take(&loader);
  EXPECT_EQ(batch.samples, 3);
  EXPECT_THAT(batch.sample_ids,
              testing::ElementsAre(Derive(5, kMany - 2), Derive(5, kMany - 1), Derive(6, 0)));
  EXPECT_EQ(batch.inputs.size(), 0);
  EXPECT_TRUE(batch.labels.empty());
}

TEST_F(BatchLoaderTest, AnEmptyPlanIsABatchOfNoSamples) {
  auto loader = MakeLoader(1, Plans({{7, {{0, 0, 4}}}, {8, {}}, {9, {{0, 3, 3}}}, {10, {{0, 1, 2}}}}));
  EXPECT_EQ(Take(loader.get()).samples, 4);
  const LoadedBatch& empty = Take(loader.get());
  EXPECT_EQ(empty.tag, 8u);
  ExpectSamples(empty, {});
  EXPECT_EQ(Take(loader.get()).samples, 0);
  ExpectSamples(Take(loader.get()), {{0, 1, 2}});
}

TEST_F(BatchLoaderTest, ABatchStaysWholeUntilTheNextCall) {
  std::atomic<int> calls = 0;
  auto loader = MakeLoader(4, [&]() -> absl::StatusOr<std::optional<BatchPlan>> {
    const uint64_t epoch = calls++;
    return BatchPlan{epoch, {{epoch, 0, 10}}};
  });
  for (uint64_t i = 0; i < 200; ++i) ExpectSamples(Take(loader.get()), {{i, 0, 10}});
}

TEST_F(BatchLoaderTest, RecyclesItsBuffersAndAlignsThem) {
  std::set<const float*> inputs;
  std::set<const LoadedBatch*> batches;
  std::vector<BatchPlan> plans(50, {0, {{0, 0, 7}}});
  auto loader = MakeLoader(3, Plans(plans));
  for (int i = 0; i < 50; ++i) {
    const LoadedBatch& batch = Take(loader.get());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.inputs.data()) % 64, 0u);
    inputs.insert(batch.inputs.data());
    batches.insert(&batch);
  }
  EXPECT_LE(inputs.size(), 3u);
  EXPECT_LE(batches.size(), 3u);
}

TEST_F(BatchLoaderTest, AsksForNoMorePlansThanItHasBuffers) {
  Mutex mu;
  CondVar changed;
  int calls = 0;
  auto loader = MakeLoader(3, [&]() -> absl::StatusOr<std::optional<BatchPlan>> {
    MutexLock lock(&mu);
    ++calls;
    changed.Notify();
    return BatchPlan{0, {{0, 0, 1}}};
  });
  // All three buffers are free at first, and from the second on each Take gives one back.
  for (int takes = 0; takes < 300; ++takes) {
    {
      MutexLock lock(&mu);
      const int free_so_far = 3 + std::max(takes - 1, 0);
      changed.Wait(&mu, [&] { return calls >= free_so_far; });
      ASSERT_EQ(calls, free_so_far) << "after " << takes << " batches";
    }
    Take(loader.get());
  }
}

TEST_F(BatchLoaderTest, GivesTheErrorOfACallbackAfterWhatWasLoadedBefore) {
  int calls = 0;
  auto loader = MakeLoader(4, [&]() -> absl::StatusOr<std::optional<BatchPlan>> {
    if (++calls == 3) return absl::UnavailableError("the master is gone");
    return BatchPlan{0, {{0, 0, 1}}};
  });
  Take(loader.get());
  Take(loader.get());
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = loader->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(status.message(), "the master is gone");
  }
}

TEST_F(BatchLoaderTest, NamesASpanOutsideTheTrainingSet) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  for (const Span& span : {Span{6, 4, 11}, Span{6, 4, 3}, Span{6, kMax - 1, kMax}}) {
    auto loader = MakeLoader(2, Plans({{12, {{0, 0, 1}, span}}}));
    const absl::Status status = loader->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), "minibatch 12 asks for positions " + std::to_string(span.begin) +
                                                 " to " + std::to_string(span.end) +
                                                 " of epoch 6; the training set has 0 to 10");
  }
}

TEST_F(BatchLoaderTest, EndsWhileItsBuffersAreFull) {
  Mutex mu;
  CondVar changed;
  int calls = 0;
  auto loader = MakeLoader(2, [&]() -> absl::StatusOr<std::optional<BatchPlan>> {
    MutexLock lock(&mu);
    ++calls;
    changed.Notify();
    return BatchPlan{0, {{0, 0, 1}}};
  });
  {
    MutexLock lock(&mu);
    changed.Wait(&mu, [&] { return calls == 2; });
  }
  loader.reset();
  EXPECT_EQ(calls, 2);
}

TEST_F(BatchLoaderTest, HasNextWhenABatchOrTheEndIsThere) {
  Mutex mu;
  CondVar changed;
  int allowed = 0;
  const auto allow = [&](int plans) {
    MutexLock lock(&mu);
    allowed = plans;
    changed.Notify();
  };
  auto loader = MakeLoader(3, [&, calls = 0]() mutable -> absl::StatusOr<std::optional<BatchPlan>> {
    MutexLock lock(&mu);
    changed.Wait(&mu, [&] { return allowed > calls; });
    if (++calls == 2) return std::nullopt;
    return BatchPlan{0, {{0, 0, 1}}};
  });
  EXPECT_FALSE(loader->HasNext());
  allow(1);
  while (!loader->HasNext()) std::this_thread::yield();
  Take(loader.get());
  EXPECT_FALSE(loader->HasNext());
  allow(2);
  while (!loader->HasNext()) std::this_thread::yield();
  EXPECT_EQ(*loader->Next(), nullptr);
}

TEST_F(BatchLoaderTest, EndsRightAfterItsStart) {
  for (int i = 0; i < 100; ++i) MakeLoader(2, Plans({{0, {{0, 0, 1}}}}));
}

TEST_F(BatchLoaderTest, MeasuresHowLongNextWaited) {
  SettableClock clock;
  clock.WatchThisThread();
  BatchLoader loader(
      &data_, nullptr, EpochOrder(kSeed, kSamples), {.depth = 2},
      [&]() -> absl::StatusOr<std::optional<BatchPlan>> {
        while (clock.readings() == 0) std::this_thread::yield();
        clock.Advance(2.5);
        return std::nullopt;
      },
      &clock);
  EXPECT_EQ(loader.seconds_waited(), 0);
  ASSERT_TRUE(loader.Next().ok());
  EXPECT_EQ(loader.seconds_waited(), 2.5);
}

TEST_F(BatchLoaderTest, ABatchThatIsReadyIsNotWaitedFor) {
  SettableClock clock;
  Mutex mu;
  CondVar changed;
  int calls = 0;
  BatchLoader loader(
      &data_, nullptr, EpochOrder(kSeed, kSamples), {.depth = 2},
      [&]() -> absl::StatusOr<std::optional<BatchPlan>> {
        MutexLock lock(&mu);
        ++calls;
        changed.Notify();
        if (calls == 2) return std::nullopt;
        return BatchPlan{0, {{0, 0, 1}}};
      },
      &clock);
  {
    // At the second call the first batch has been loaded, and nothing more is.
    MutexLock lock(&mu);
    changed.Wait(&mu, [&] { return calls == 2; });
  }
  clock.WatchThisThread();
  ASSERT_TRUE(loader.Next().ok());
  EXPECT_EQ(clock.readings(), 0);
  EXPECT_EQ(loader.seconds_waited(), 0);
}

TEST_F(BatchLoaderTest, AnyNumberOfThreadsMakesTheSameMinibatches) {
  std::vector<BatchPlan> plans;
  for (uint64_t i = 0; i < 200; ++i)
    plans.push_back({i, {{i / 3, i % 7, 10}, {i, 0, i % 4}, {i + 1, 3, 3 + i % 8}}});
  for (const int threads : {1, 2, 3, 8}) {
    auto loader = MakeLoader(3, Plans(plans), threads);
    for (const BatchPlan& plan : plans) {
      const LoadedBatch& batch = Take(loader.get());
      EXPECT_EQ(batch.tag, plan.tag);
      ExpectSamples(batch, plan.spans);
    }
    EXPECT_EQ(*loader->Next(), nullptr);
  }
}

// Samples in files of 1000 bytes, one of which is damaged.
class Files final : public SampleContent {
 public:
  absl::StatusOr<int64_t> Read(int64_t index, std::optional<uint64_t> crop_seed, float* out) const override {
    if (index == kDamaged) return absl::DataLossError(absl::StrCat("sample ", index, " is damaged"));
    out[0] = static_cast<float>(crop_seed.value_or(0) % 1000);
    return 1000;
  }
  static constexpr int kDamaged = 4;
};

TEST_F(BatchLoaderTest, CountsWhatItReads) {
  const Dataset data({1, 1, 1}, 1, std::make_unique<Files>(), std::vector<int32_t>(kSamples));
  EpochOrder order(kSeed, kSamples);
  const std::vector<uint32_t>& indices = order.order(0);
  const uint64_t damaged = std::find(indices.begin(), indices.end(), Files::kDamaged) - indices.begin();
  BatchLoader loader(&data, nullptr, EpochOrder(kSeed, kSamples), {.depth = 2, .threads = 2},
                     Plans({{0, {{0, 0, damaged}, {0, damaged + 1, kSamples}}}}), &clock_);
  Take(&loader);
  EXPECT_EQ(loader.bytes_read(), 9000u);
  EXPECT_EQ(loader.read_seconds(), 0) << "the clock stands still";
}

TEST_F(BatchLoaderTest, ADamagedSampleEndsTheLoading) {
  const Dataset data({1, 1, 1}, 1, std::make_unique<Files>(), std::vector<int32_t>(kSamples));
  for (const int threads : {1, 4}) {
    BatchLoader loader(&data, nullptr, EpochOrder(kSeed, kSamples), {.depth = 2, .threads = threads},
                       Plans({{0, {{0, 0, 10}}}}), &clock_);
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = loader.Next().status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(status.message(), "sample 4 is damaged");
    }
  }
}

TEST_F(BatchLoaderTest, ARandomCropFollowsFromTheSampleAndTheEpoch) {
  const Dataset data({1, 1, 1}, 1, std::make_unique<Files>(), std::vector<int32_t>(kSamples));
  v1::Augmentation config;
  config.mutable_random_resized_crop();
  const Augmentation augmentation(config, data.input_shape(), 5);
  std::set<float> values;
  for (const int threads : {1, 3}) {
    for (uint64_t position = 0; position < kSamples; ++position) {
      if (EpochOrder(kSeed, kSamples).order(1)[position] == Files::kDamaged) continue;
      BatchLoader loader(&data, &augmentation, EpochOrder(kSeed, kSamples), {.depth = 1, .threads = threads},
                         Plans({{0, {{1, position, position + 1}}}}), &clock_);
      values.insert(Take(&loader).inputs.data()[0]);
    }
  }
  EXPECT_EQ(values.size(), 9u) << "one for each sample, with any number of threads";
}

}  // namespace
}  // namespace catchment
