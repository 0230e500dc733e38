// NameEntry is one name in the segment's table. The first thread that meets the name enters it;
// others compare it, and other processes read it.
//
//   state   kFree ---> kWriting ---> kValid
//              swap: one thread    publishes the text, which never changes again
//
// A thread that finds kWriting neither waits nor takes another entry: its own name may be in it.
//
// Thread: Enter any; Read any, in other processes too. Cost: a few loads.
// Explored by tests/model/name_table_test.cc.
#ifndef METRICS_NAME_ENTRY_H_
#define METRICS_NAME_ENTRY_H_

#include <cstdint>
#include <cstring>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

// A name as stored in the table: zero-terminated, padded with zeros.
struct NameText {
  char text[28];
};

template <typename Atomics>
class BasicNameEntry {
 public:
  enum State : uint32_t { kFree = 0, kWriting = 1, kValid = 2 };
  enum class Entered {
    kHere,   // the entry now has this name
    kOther,  // the entry has another name
    kBusy    // another thread is writing it
  };

  Entered Enter(const NameText& name) {
    uint32_t state = state_.acquire();  // sees the text
    if (state == kFree) {
      // Relaxed: nothing was written here before, and the text is published below.
      if (state_.replace(state, kWriting)) {
        Fill(name);
        return Entered::kHere;
      }
      state = state_.acquire();  // sees the text, if the other thread has finished
    }
    if (state != kValid) return Entered::kBusy;
    for (int i = 0; i < kWords; ++i) {
      if (words_[i].load() != Word(name, i)) return Entered::kOther;
    }
    return Entered::kHere;
  }

  // Enters `name` without checking the entry. For the creator of the table.
  void Fill(const NameText& name) {
    for (int i = 0; i < kWords; ++i) words_[i].store(Word(name, i));
    state_.publish(kValid);  // publishes the text
  }

  // False if the entry has no name.
  bool Read(NameText* name) const {
    if (state_.acquire() != kValid) return false;  // sees the text
    for (int i = 0; i < kWords; ++i) {
      const uint32_t word = words_[i].load();
      std::memcpy(name->text + i * sizeof(word), &word, sizeof(word));
    }
    return true;
  }

 private:
  static constexpr int kWords = sizeof(NameText) / sizeof(uint32_t);

  static uint32_t Word(const NameText& name, int i) {
    uint32_t word;
    std::memcpy(&word, name.text + i * sizeof(word), sizeof(word));
    return word;
  }

  Ordered<uint32_t, Atomics> state_;
  Relaxed<uint32_t, Atomics> words_[kWords];
};

using NameEntry = BasicNameEntry<StdAtomics>;
static_assert(sizeof(NameEntry) == 32);

}  // namespace nccl_pulse

#endif  // METRICS_NAME_ENTRY_H_
