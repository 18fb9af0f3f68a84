// Decides when the master's standby gets an image of its state, and which answers and commands wait for it.
//
// An answer or a command that shows a change may leave when the standby has an image with the change. Images
// use at most a tenth of the time, however many members there are: changes that occur in the meantime share
// the next image.
//
// Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_IMAGE_GATE_H_
#define CATCHMENT_SERVER_CONTROL_IMAGE_GATE_H_

#include <algorithm>
#include <cstdint>

namespace catchment {

class ImageGate {
 public:
  // Notes that the state has changed in a way that an answer or a command shows.
  void NoteChange() { changed_ = true; }
  // Returns true if a change is in no image yet.
  bool changed() const { return changed_; }
  // Returns the number of the image that has all changes so far; 0: there were none.
  uint64_t awaited() const { return changed_ ? taken_ + 1 : taken_; }

  // Returns true if an image must be taken now.
  bool IsDue(double now) const { return changed_ && now >= next_; }
  // Returns when an image is due, if changed().
  double next() const { return next_; }
  // Returns the number of an image that is taken now.
  uint64_t Take() {
    changed_ = false;
    return ++taken_;
  }
  // Forgets the change: no image will be taken of it.
  void Drop() { changed_ = false; }
  // Notes how long it took to describe the state.
  void OnDescribed(double begin, double end) { next_ = begin + kPause * (end - begin); }

  // Notes that the standby has an image.
  void OnCommitted(uint64_t image) { committed_ = std::max(committed_, image); }
  // Returns true if the standby has the image, or a later one.
  bool IsCommitted(uint64_t image) const { return image <= committed_; }

 private:
  // The shortest time between the ends of two images, in multiples of the time to describe one.
  static constexpr double kPause = 10;

  bool changed_ = false;
  uint64_t taken_ = 0;
  uint64_t committed_ = 0;
  double next_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_IMAGE_GATE_H_
