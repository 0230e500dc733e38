// One rank of a job, a process: its flags, the NCCL and the CUDA that it loads, and how it reports. What fails ends it, or
// is reported and left as it is (g_stays_after_errors).
#ifndef TESTS_GPU_RANK_H_
#define TESTS_GPU_RANK_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/gpu/nccl_api.h"

namespace nccl_pulse {

inline constexpr int kExitWrongResult = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitApi = 3;

// NCCL and the CUDA runtime, found and loaded at run time.
// NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses)
struct Api {
#define NCCL_PULSE_DECLARE(name, parameters) int(*name) parameters = nullptr;
  NCCL_PULSE_NCCL_FUNCTIONS(NCCL_PULSE_DECLARE)
  NCCL_PULSE_CUDA_FUNCTIONS(NCCL_PULSE_DECLARE)
#undef NCCL_PULSE_DECLARE
  const char* (*ncclGetErrorString)(int result) = nullptr;
  const char* (*ncclGetLastError)(NcclComm comm) = nullptr;
  const char* (*cudaGetErrorString)(int error) = nullptr;
};
// NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses)

extern Api g_api;
// False: an error of NCCL or CUDA ends the process. True: it is an event "error", after which the process waits, as a
// program does whose watchdog has not noticed yet.
extern bool g_stays_after_errors;
// The "way" of the event "error": what the program tries.
extern std::string g_way;

struct RankFlags {
  int rank = -1;
  int nranks = 0;
  int gpu = 0;
  std::string exchange;      // a folder that the ranks share
  std::string library_path;  // folders of libnccl and libcudart, with colons between
};

// By name ("--sizes"): takes the value.
using FlagSetters = std::map<std::string, std::function<void(const std::string&)>>;
std::function<void(const std::string&)> SetInt(int* value);

// Reads "--name=value" flags: those of `flags`, and `others`. Ends the process if one is neither, or if rank or folder
// are missing or wrong.
void ReadFlags(int argc, char** argv, RankFlags* flags, FlagSetters others);

// The parts of "A,B,C".
std::vector<std::string> Listed(const std::string& text);

// Loads NCCL and the CUDA runtime, and returns NCCL's version. The process ends after `life_seconds`.
int Begin(const RankFlags& flags, unsigned life_seconds);

[[noreturn]] void Die(int status, const std::string& message);
[[noreturn]] void Fail(const std::string& message);
[[noreturn]] void WaitForEver();

void CheckCuda(CudaError error, const std::string& what);
void CheckNccl(NcclResult result, const std::string& what, NcclComm comm = nullptr);

// A non-blocking communicator's calls return before they are done.
void WaitForCall(NcclComm comm, const char* what);

// Prints a line of JSON, {"event": `event`, "pid", "time"`more`}.
void Say(const std::string& event, const std::string& more = "");

// Calls `run` for each phase, and waits for a line on standard input behind each. `run` returns false: no such phase.
void RunPhases(const std::vector<std::string>& phases,
               const std::function<bool(const std::string& phase)>& run);

// The id that rank 0 makes for a communicator, through the folder that the ranks share.
NcclUniqueId ExchangeId(const RankFlags& flags, const std::string& name);

// Communicators of all ranks, by name: each is made when it is first asked for. All ranks ask in the same order.
class NamedCommunicators {
 public:
  explicit NamedCommunicators(const RankFlags& flags) : flags_(flags) {}
  NcclComm Get(const std::string& name);

 private:
  const RankFlags flags_;
  std::map<std::string, NcclComm> communicators_;
};

// A stream with two buffers of the GPU. Never freed: the process ends first.
class Buffers {
 public:
  explicit Buffers(uint64_t bytes);

  CudaStream stream() const { return stream_; }
  void* send() const { return send_; }
  void* recv() const { return recv_; }
  void Synchronize() const { CheckCuda(g_api.cudaStreamSynchronize(stream_), "synchronize"); }
  void Copy(void* to, const void* from, uint64_t bytes) const {
    CheckCuda(g_api.cudaMemcpyAsync(to, from, bytes, kCopyDefault, stream_), "copy");
  }
  void AllReduce(NcclComm comm, uint64_t bytes) const {
    CheckNccl(g_api.ncclAllReduce(send_, recv_, bytes / 4, kFloat32, kSum, comm, stream_),
              "ncclAllReduce");
  }

  // The sum over all ranks. No rank leaves before the last one has come.
  template <size_t N>
  std::array<float, N> Sum(NcclComm comm, const std::array<float, N>& mine) const {
    std::array<float, N> all{};
    Copy(send_, mine.data(), sizeof(mine));
    AllReduce(comm, sizeof(mine));
    Synchronize();
    Copy(all.data(), recv_, sizeof(all));
    Synchronize();
    return all;
  }

 private:
  CudaStream stream_ = nullptr;
  void* send_ = nullptr;
  void* recv_ = nullptr;
};

}  // namespace nccl_pulse

#endif  // TESTS_GPU_RANK_H_
