// The checker's atomics behind the product's seam (metrics/atomic_cell.h), and the weakening of one
// ordering at a time.
//
// Relacy runs the threads of a test as fibres, chooses at each atomic operation who goes on and
// which of the values that the C++ memory model allows a load returns, and so explores executions
// that no x86 processor shows. Choices follow from the number of the execution: a run is the same
// everywhere.
//
// Every ordering that is stronger than relaxed is a Site: file, line, operation, and for the cells
// of atomic_cell.h, whose lines all protocols share, which cell. EachOrderingMatters (explore.h)
// weakens one after the other.
#ifndef TESTS_MODEL_CHECKED_ATOMICS_H_
#define TESTS_MODEL_CHECKED_ATOMICS_H_

#include <atomic>
#include <string>

#include "gtest/gtest.h"
#include "metrics/chunk_pool.h"
#include "metrics/heartbeat.h"
#include "metrics/lane_claim.h"
#include "metrics/last_call_entry.h"
#include "metrics/name_entry.h"
#include "metrics/record_life.h"
#include "metrics/timed_call.h"
#include "metrics/visit.h"
#include "plugin/tracker/clock_scale.h"
#include "plugin/tracker/operation_slot_impl.h"

// Last: it gives words like `new` and `assert` another meaning, which is taken back below.
#include "relacy/relacy.hpp"
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef assert
#undef errno

namespace nccl_pulse {

struct Site {
  const char* file;  // without its folders
  int line;
  const char* function;
  const char* operation;
  int cell;  // Sites::kNone: any
};
std::string ToString(const Site& site);

// One for all: the checker runs one execution after the other, on one thread. Within an execution
// memory belongs to the checker, so nothing here allocates.
class Sites {
 public:
  static constexpr int kMost = 128;
  static constexpr int kNone = -1;

  // Before each execution: cells are numbered in the order in which they are made.
  static void BeginExecution() { next_cell_ = 0; }
  static int NextCell() { return next_cell_++; }

  // Forgets all sites and weakens none.
  static void Clear();
  static int count() { return count_; }
  static const Site& at(int site) { return sites_[site]; }
  static void Weaken(int site) { weakened_ = site; }

  // Whether this one is to be relaxed.
  static bool IsWeakened(const Site& site);

 private:
  static int next_cell_;
  static int weakened_;
  static int count_;
  static Site sites_[kMost];
};

// What the product passes, or relaxed at the weakened site.
rl::memory_order Checked(std::memory_order order, const Site& site);

struct CheckedAtomics {
  template <typename T>
  class Atomic {
   public:
    // Memory of a segment starts as zeroes.
    Atomic() : cell_(T{}), number_(Sites::NextCell()) {}
    explicit Atomic(T value) : cell_(value), number_(Sites::NextCell()) {}

    T load(std::memory_order order, int line = __builtin_LINE(),
           const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION()) const {
      return cell_.load(Checked(order, {file, line, function, "load", number_}), Info(file, line));
    }
    void store(T value, std::memory_order order, int line = __builtin_LINE(),
               const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION()) {
      cell_.store(value, Checked(order, {file, line, function, "store", number_}),
                  Info(file, line));
    }
    T exchange(T value, std::memory_order order, int line = __builtin_LINE(),
               const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION()) {
      return cell_.exchange(value, Checked(order, {file, line, function, "exchange", number_}),
                            Info(file, line));
    }
    T fetch_add(T value, std::memory_order order, int line = __builtin_LINE(),
                const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION()) {
      return cell_.fetch_add(value, Checked(order, {file, line, function, "add", number_}),
                             Info(file, line));
    }
    T fetch_sub(T value, std::memory_order order, int line = __builtin_LINE(),
                const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION()) {
      return cell_.fetch_sub(value, Checked(order, {file, line, function, "sub", number_}),
                             Info(file, line));
    }
    T fetch_and(T value, std::memory_order order, int line = __builtin_LINE(),
                const char* file = __builtin_FILE(), const char* function = __builtin_FUNCTION()) {
      return cell_.fetch_and(value, Checked(order, {file, line, function, "and", number_}),
                             Info(file, line));
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order success,
                                 std::memory_order failure, int line = __builtin_LINE(),
                                 const char* file = __builtin_FILE(),
                                 const char* function = __builtin_FUNCTION()) {
      return cell_.compare_exchange_strong(
          expected, value, Checked(success, {file, line, function, "swap", number_}),
          Info(file, line), Checked(failure, {file, line, function, "failed swap", number_}),
          Info(file, line));
    }
    bool compare_exchange_weak(T& expected, T value, std::memory_order success,
                               std::memory_order failure, int line = __builtin_LINE(),
                               const char* file = __builtin_FILE(),
                               const char* function = __builtin_FUNCTION()) {
      return cell_.compare_exchange_weak(
          expected, value, Checked(success, {file, line, function, "swap", number_}),
          Info(file, line), Checked(failure, {file, line, function, "failed swap", number_}),
          Info(file, line));
    }

   private:
    static rl::debug_info Info(const char* file, int line) {
      return rl::debug_info("", file, static_cast<unsigned>(line));
    }

    rl::atomic<T> cell_;
    int number_;
  };

  static void Fence(std::memory_order order, int line = __builtin_LINE(),
                    const char* file = __builtin_FILE(),
                    const char* function = __builtin_FUNCTION()) {
    const rl::memory_order checked = Checked(order, {file, line, function, "fence", Sites::kNone});
    if (checked == rl::mo_relaxed) return;
    rl::atomic_thread_fence(checked, rl::debug_info("", file, static_cast<unsigned>(line)));
  }
  template <typename Cell, typename T>
  static bool AddInPlace(Cell& /*cell*/, T /*amount*/) {
    return false;
  }
  // What the two are together: where it matters, membarrier makes a full fence of the light one.
  static void LightFence(bool /*is_even*/, int line = __builtin_LINE(),
                         const char* file = __builtin_FILE(),
                         const char* function = __builtin_FUNCTION()) {
    Fence(std::memory_order_seq_cst, line, file, function);
  }
  static bool HeavyFence(int line = __builtin_LINE(), const char* file = __builtin_FILE(),
                         const char* function = __builtin_FUNCTION()) {
    Fence(std::memory_order_seq_cst, line, file, function);
    return true;
  }
};

// For a member of a test that comes before all of its cells.
struct ExecutionBegins {
  ExecutionBegins() { Sites::BeginExecution(); }
};

}  // namespace nccl_pulse

#endif  // TESTS_MODEL_CHECKED_ATOMICS_H_
