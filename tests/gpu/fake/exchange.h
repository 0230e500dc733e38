// Data between the ranks of a communicator, through a file that all of them map.
//
//   4 KiB: barrier, words that each rank may publish, and how many small Broadcasts it has made
//   then for each rank kAreaBytes of data that the others read
//   then for each rank kSlots slots, from which the next one takes small Broadcasts
// It is a sparse file, so what is not used costs nothing.
//
// Every rank must take part in every exchange. Thread: one at a time.
#ifndef TESTS_GPU_FAKE_EXCHANGE_H_
#define TESTS_GPU_FAKE_EXCHANGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace nccl_pulse::fake {

inline constexpr size_t kAreaBytes = size_t{96} << 20;
inline constexpr size_t kSlotBytes = 4096;
inline constexpr uint64_t kSlots = 8;  // as NCCL's buffers, NCCL_STEPS
inline constexpr int kMaxRanks = 16;

class Exchange {
 public:
  // Returns when all ranks have come.
  Exchange(const std::string& path, int rank, int nranks);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Returns when all ranks are here. A rank that died keeps the others waiting, as in NCCL.
  void Barrier();
  // A Barrier; false when the ranks came with different words. Another Barrier must follow.
  bool Meet(const uint64_t (&words)[2]);
  // At most kSlotBytes from the root round the ring of ranks. Waits for the rank before it to hand
  // it on, and for a slot; not for the ranks behind it.
  void Broadcast(int root, const void* send, void* recv, size_t bytes);
  // What every rank gave, by rank.
  void Publish(const uint64_t (&words)[2], uint64_t (*all)[2]);
  char* Area(int rank) const {
    return base_ + kHeaderBytes + kAreaBytes * static_cast<size_t>(rank);
  }

 private:
  static constexpr size_t kHeaderBytes = 4096;
  struct Header {
    std::atomic<uint32_t> arrived;
    std::atomic<uint32_t> round;
    uint64_t words[kMaxRanks][2];
    std::atomic<uint64_t> broadcasts[kMaxRanks];
  };
  static_assert(sizeof(Header) <= kHeaderBytes);

  char* Slot(int rank, uint64_t broadcast) const {
    return base_ + kHeaderBytes + kAreaBytes * static_cast<size_t>(nranks_) +
           kSlotBytes * (static_cast<size_t>(rank) * kSlots + broadcast % kSlots);
  }
  Header& header() const { return *reinterpret_cast<Header*>(base_); }

  const int rank_;
  const int nranks_;
  size_t bytes_;
  char* base_;
};

}  // namespace nccl_pulse::fake

#endif  // TESTS_GPU_FAKE_EXCHANGE_H_
