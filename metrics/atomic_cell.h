// Atomics whose ordering rule is part of their type. A model checker can replace std::atomic.
//
// THE RULES
//   Relaxed<T>   Orders nothing. For independent cells (a flag, an estimate, a budget), and for
//                cells that something else publishes: a generation, a sequence, a state, the
//                release of a lane. One writer at a time; fetch_add and replace allow several.
//   Ordered<T>   As above; in addition, a reader that sees a published value also sees everything
//                its writer stored before. publish() and acquire() are the two ends.
//   a protocol   Anything that needs more (fences, a second read, an acquiring swap) is a class of
//                its own, with the argument beside each ordering. They are listed in
//                docs/architecture.md#memory-ordering.
// Any other explicit std::memory_order is for cases that no rule here fits, and has its argument in
// one line.
//
// CHECKING. A protocol is a template over `Atomics`. Production code instantiates it for
// StdAtomics. //tests/model instantiates the same code on a checker's atomics and explores its
// executions under the C++ memory model.
//
// Thread: as each cell's owner says. Cost: a plain load or store on x86 and ARM (publish and
// acquire: also one instruction); fetch_add and replace: one read-modify-write.
#ifndef METRICS_ATOMIC_CELL_H_
#define METRICS_ATOMIC_CELL_H_

#include <atomic>

namespace nccl_pulse {

struct StdAtomics {
  template <typename T>
  using Atomic = std::atomic<T>;
  static void Fence(std::memory_order order) { std::atomic_thread_fence(order); }

  // Two full fences that pair, one light and one heavy (visit.h). The heavy one is membarrier(2).
  // Once the process is registered for it, the light one only restrains the compiler. If membarrier
  // fails later, HeavyFence returns false and is no fence. `is_even`: FencesAreEven, which each
  // Visit copies beside its own flag, to touch one cache line less.
  static void LightFence(bool is_even) {
    if (__builtin_expect(is_even, 0)) return std::atomic_thread_fence(std::memory_order_seq_cst);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  // True if both are plain full fences: the process is not registered.
  static bool FencesAreEven() { return !fences_are_uneven_.load(std::memory_order_relaxed); }
  // Adds to a cell that has one writer, in one instruction, because compilers do not merge an
  // atomic's load and store. Returns false, without effect, except for 4 or 8 bytes on x86-64. The
  // instruction has no lock prefix, so it is a load and a store, in that order. x86 keeps the order
  // of stores, and the clobber makes the compiler keep it. A reader that sees the sum therefore
  // also sees everything stored before it (release).
  template <typename T>
  [[gnu::always_inline]] static bool AddInPlace(std::atomic<T>& cell, T amount) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    if constexpr (sizeof(T) == 8) {
      asm volatile("addq %1, %0" : "+m"(cell) : "er"(amount) : "cc", "memory");
      return true;
    } else if constexpr (sizeof(T) == 4) {
      asm volatile("addl %1, %0" : "+m"(cell) : "er"(amount) : "cc", "memory");
      return true;
    }
#endif
    return false;
  }

  // False if membarrier failed.
  static bool HeavyFence();
  // Registers the process for membarrier. Call before the first fence of either kind.
  static void PrepareHeavyFence();

 private:
  [[gnu::visibility("hidden")]] static std::atomic<bool> fences_are_uneven_;
};

template <typename T, typename Atomics = StdAtomics>
class Relaxed {
 public:
  Relaxed() = default;
  explicit constexpr Relaxed(T value) : cell_(value) {}

  T load() const { return cell_.load(std::memory_order_relaxed); }
  operator T() const { return load(); }  // NOLINT(google-explicit-constructor): reads like a number
  void store(T value) { cell_.store(value, std::memory_order_relaxed); }
  // One writer only: no read-modify-write.
  void add(T amount) {
    if (!Atomics::AddInPlace(cell_, amount)) store(static_cast<T>(load() + amount));
  }

  // For several writers. Returns the previous value.
  T fetch_add(T amount) { return cell_.fetch_add(amount, std::memory_order_relaxed); }
  T fetch_sub(T amount) { return cell_.fetch_sub(amount, std::memory_order_relaxed); }
  T exchange(T value) { return cell_.exchange(value, std::memory_order_relaxed); }
  // Stores `value` if the cell holds `expected`; otherwise loads the cell into `expected`.
  bool replace(T& expected, T value) {
    return cell_.compare_exchange_strong(expected, value, std::memory_order_relaxed,
                                         std::memory_order_relaxed);
  }

 protected:
  typename Atomics::template Atomic<T> cell_;
};

template <typename T, typename Atomics = StdAtomics>
class Ordered : public Relaxed<T, Atomics> {
 public:
  using Relaxed<T, Atomics>::Relaxed;

  // Release: see the rules above.
  void publish(T value) { this->cell_.store(value, std::memory_order_release); }
  // Like add, with release: a reader that sees the new sum also sees everything stored before it.
  void publish_sum(T amount) {
    if (!Atomics::AddInPlace(this->cell_, amount)) publish(static_cast<T>(this->load() + amount));
  }
  // For several writers. Publishes `value` if the cell holds `expected`. Otherwise loads the cell
  // into `expected` with acquire: the caller sees everything stored before that value.
  bool publish_if(T& expected, T value) {
    return this->cell_.compare_exchange_strong(expected, value, std::memory_order_release,
                                               std::memory_order_acquire);
  }
  // Acquire: pairs with publish.
  T acquire() const { return this->cell_.load(std::memory_order_acquire); }
};

}  // namespace nccl_pulse

#endif  // METRICS_ATOMIC_CELL_H_
