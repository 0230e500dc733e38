// A rank of nccl_program: its communicators, the values that it sends, and Worker, who makes the calls on them and compares
// what comes back.
//
// Thread: each Worker belongs to one.
#ifndef TESTS_GPU_NCCL_WORKER_H_
#define TESTS_GPU_NCCL_WORKER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "tests/gpu/ledger.h"
#include "tests/gpu/nccl_api.h"
#include "tests/gpu/rank.h"

namespace nccl_pulse {

inline constexpr uint64_t kMaxBytes = 8 << 20;  // of one call, per rank

struct Communicator {
  NcclComm handle = nullptr;
  CommunicatorLedger ledger;
  bool is_in_group = false;
  uint64_t calls_in_group = 0;
  uint64_t broadcasts_in_group = 0;

  int rank() const { return ledger.rank; }
  int nranks() const { return ledger.nranks; }
};

// Made in the same order on all ranks.
class Communicators {
 public:
  explicit Communicators(const RankFlags& flags) : flags_(flags) {}

  // Makes a communicator of all ranks. Without a name if `name` is "".
  Communicator& New(const std::string& name, bool blocking = true);
  // Reverses the order of ranks, and splits even from odd ranks if there are four or more.
  Communicator& NewSplit(Communicator& parent, const std::string& name, bool share);
  static void Destroy(Communicator& comm);

  // Those that were ever made.
  std::deque<Communicator>& all() { return all_; }
  const std::deque<Communicator>& all() const { return all_; }

 private:
  static Communicator& Adopt(NcclComm handle, Communicator& comm);

  const RankFlags flags_;
  std::deque<Communicator> all_;
  int exchanged_ = 0;  // which communicator it is, since all ranks make them in the same order
};

// Small enough for every data type to add up over eight ranks without rounding.
inline int ValueOf(int rank, uint64_t i) { return (rank + 1) * static_cast<int>(i % 3 + 1); }

inline int SumOf(int nranks, uint64_t i) {
  return nranks * (nranks + 1) / 2 * static_cast<int>(i % 3 + 1);
}

// So many elements as they stand in memory.
std::vector<char> Encoded(int datatype, uint64_t count,
                          const std::function<int(uint64_t)>& value_of);

enum class Op { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce };
inline constexpr Op kAllOps[] = {Op::kAllReduce, Op::kAllGather, Op::kReduceScatter, Op::kBroadcast,
                                 Op::kReduce};

struct Shape {
  int datatype;
  uint64_t bytes;  // of one call, as NCCL's user counts: per rank for AllGather and ReduceScatter

  uint64_t count() const { return bytes / DatatypeBytes(datatype); }
};

// Buffers, and what to do with them. Belongs to one thread.
class Worker : public Buffers {
 public:
  Worker(int gpu, int nranks);

  char* send() const { return static_cast<char*>(Buffers::send()); }
  char* recv() const { return static_cast<char*>(Buffers::recv()); }

  void SetSend(const std::vector<char>& bytes);
  void ClearRecv(uint64_t bytes);
  void CheckRecv(const std::vector<char>& expected, const std::string& what, uint64_t offset = 0);

  void GroupStart(Communicator& comm);
  void GroupEnd(Communicator& comm);

  void Collective(Communicator& comm, Op op, Shape shape, int root, const void* send, void* recv,
                  bool captured = false);
  void Send(Communicator& comm, Shape shape, int peer, const void* send);
  void Recv(Communicator& comm, Shape shape, int peer, void* recv);

  // What the collective takes and what it must give, element by element.
  static std::vector<char> Input(const Communicator& comm, Op op, Shape shape);
  static std::vector<char> Output(const Communicator& comm, Op op, Shape shape, int root);

  // Every collective in every shape, `repeats` times without waiting in between.
  void Sweep(Communicator& comm, const std::vector<Shape>& shapes, int repeats);

  uint64_t checked() const { return checked_; }
  uint64_t wrong() const { return wrong_; }
  void AddChecks(const Worker& other);

 private:
  void Made(Communicator& comm, const char* op, Shape shape, bool captured, bool to_self,
            NcclResult result);

  uint64_t checked_ = 0;
  uint64_t wrong_ = 0;
};

}  // namespace nccl_pulse

#endif  // TESTS_GPU_NCCL_WORKER_H_
