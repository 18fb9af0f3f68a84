// Floats in memory that begins at a cache line.
#ifndef CATCHMENT_WORKER_DATA_ALIGNED_FLOATS_H_
#define CATCHMENT_WORKER_DATA_ALIGNED_FLOATS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace catchment {

// The memory only grows, so an object that is used repeatedly stops allocating.
class AlignedFloats {
 public:
  static constexpr std::size_t kAlignment = 64;  // bytes

  // Resizes without initialising values. If the array must grow, its contents are lost.
  void Resize(int64_t size) {
    if (size > capacity_) {
      values_.reset(new (std::align_val_t(kAlignment)) float[size]);
      capacity_ = size;
    }
    size_ = size;
  }

  float* data() { return values_.get(); }
  const float* data() const { return values_.get(); }
  int64_t size() const { return size_; }
  int64_t capacity() const { return capacity_; }

 private:
  struct Delete {
    void operator()(float* values) const { operator delete[](values, std::align_val_t(kAlignment)); }
  };

  std::unique_ptr<float[], Delete> values_;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_ALIGNED_FLOATS_H_
