// A rank's communicators, and who makes the calls on them and compares what comes back.
//
// Thread: each Worker belongs to one.
#ifndef TESTS_GPU_NCCL_WORKER_H_
#define TESTS_GPU_NCCL_WORKER_H_

#include <cstdint>
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

enum class Op { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce };
inline constexpr Op kAllOps[] = {Op::kAllReduce, Op::kAllGather, Op::kReduceScatter, Op::kBroadcast,
                                 Op::kReduce};

struct Shape {
  int datatype;
  uint64_t bytes;  // of one call, as NCCL's user counts: per rank for AllGather and ReduceScatter

  uint64_t count() const { return bytes / DatatypeBytes(datatype); }
};

// A stream, buffers, and what to do with them. Belongs to one thread.
class Worker {
 public:
  Worker(int gpu, int nranks);

  CudaStream stream() const { return stream_; }
  char* send() const { return static_cast<char*>(send_); }
  char* recv() const { return static_cast<char*>(recv_); }

  void Synchronize() { CheckCuda(g_api.cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

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

  const uint64_t bytes_;
  CudaStream stream_ = nullptr;
  void* send_ = nullptr;
  void* recv_ = nullptr;
  uint64_t checked_ = 0;
  uint64_t wrong_ = 0;
};

}  // namespace nccl_pulse

#endif  // TESTS_GPU_NCCL_WORKER_H_
