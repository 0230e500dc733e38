// Atomics whose ordering rule is part of their type. A checker of the memory model can stand in for
// std::atomic (`Atomics`).
//
// THE RULES
//   Relaxed<T>   Orders nothing. For a cell that stands alone (a flag, an estimate, a budget), and
//                for one that something else publishes: a generation, a sequence, a state, the
//                release of a lane. One writer at a time; fetch_add and replace allow several.
//   Ordered<T>   As above, and one more promise: who sees a published value also sees all that its
//                writer stored before. publish() and acquire() are the two ends of it.
//
// An explicit std::memory_order is for what no rule here fits, and has its argument in a line.
//
// Thread: as each cell's owner says. Cost: a plain load or store, on x86 and on ARM (publish and
// acquire: one instruction, too); fetch_add and replace: one read-modify-write.
#ifndef METRICS_ATOMIC_CELL_H_
#define METRICS_ATOMIC_CELL_H_

#include <atomic>

namespace nccl_pulse {

struct StdAtomics {
  template <typename T>
  using Atomic = std::atomic<T>;
  static void Fence(std::memory_order order) { std::atomic_thread_fence(order); }
};

template <typename T, typename Atomics = StdAtomics>
class Relaxed {
 public:
  Relaxed() = default;
  explicit constexpr Relaxed(T value) : cell_(value) {}

  T load() const { return cell_.load(std::memory_order_relaxed); }
  void store(T value) { cell_.store(value, std::memory_order_relaxed); }
  // The caller is the only writer: no read-modify-write.
  void add(T amount) { store(static_cast<T>(load() + amount)); }

  // Several writers. Returns the value before.
  T fetch_add(T amount) { return cell_.fetch_add(amount, std::memory_order_relaxed); }
  T fetch_sub(T amount) { return cell_.fetch_sub(amount, std::memory_order_relaxed); }
  T exchange(T value) { return cell_.exchange(value, std::memory_order_relaxed); }
  // Stores `value` if the cell holds `expected`; otherwise `expected` becomes what it holds.
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
  // Acquire: pairs with publish.
  T acquire() const { return this->cell_.load(std::memory_order_acquire); }
};

}  // namespace nccl_pulse

#endif  // METRICS_ATOMIC_CELL_H_
