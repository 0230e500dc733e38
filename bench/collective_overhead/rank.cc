#include "bench/collective_overhead/rank.h"

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/collective_overhead/compute_kernel.h"
#include "bench/collective_overhead/protocol.h"
#include "bench/collective_overhead/values.h"

#define RETURN_IF_ERROR(expression)                               \
  do {                                                            \
    if (Error error = (expression); !error.empty()) return error; \
  } while (false)
#define RETURN_IF_CUDA(call) RETURN_IF_ERROR(driver_.Check(driver_.call, #call))

namespace nccl_pulse::overhead {
namespace {

constexpr uint64_t kElementBytes = 4;
// Elements copied and compared at a time: whole periods, about a megabyte.
constexpr uint64_t kChunkCount = kValuePeriod * 4096;

double NowUs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Parses the kernel's format of processor lists, "0-3,8".
std::vector<int> ParseProcessors(const std::string& text) {
  std::vector<int> processors;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipWhitespace()))) {
    const std::vector<std::string> ends = absl::StrSplit(part, '-');
    int first = 0;
    int last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last)) return {};
    for (int processor = first; processor <= last; ++processor) processors.push_back(processor);
  }
  return processors;
}

// Places a rank's thread on CPUs near its GPU, if the system knows them.
class Processors {
 public:
  // `bus_id`: of the GPU, in the driver's format.
  void Find(const std::string& bus_id) {
    sched_getaffinity(0, sizeof(allowed_), &allowed_);
    std::string path = absl::StrCat("/sys/bus/pci/devices/", bus_id, "/local_cpulist");
    std::transform(path.begin(), path.end(), path.begin(),
                   [](unsigned char c) { return static_cast<char>(tolower(c)); });
    std::string list;
    std::getline(std::ifstream(path), list);
    near_.clear();
    for (const int processor : ParseProcessors(list)) {
      if (processor < CPU_SETSIZE && CPU_ISSET(processor, &allowed_)) near_.push_back(processor);
    }
    for (int processor = 0; near_.empty() && processor < CPU_SETSIZE; ++processor) {
      if (CPU_ISSET(processor, &allowed_)) near_.push_back(processor);
    }
  }

  // Pins the calling thread to one of the found CPUs, chosen by `number` and the rank. Ranks get
  // different CPUs.
  void Pin(uint32_t number, int rank, int nranks) const {
    // Three apart, because neighbors and halves of the list are often two threads of one core.
    const std::size_t n = near_.size();
    const std::size_t apart = n >= 3 * static_cast<std::size_t>(nranks) ? 3 : 1;
    const std::size_t at = (number + apart * static_cast<std::size_t>(rank)) % n;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(near_[at], &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
  }

  // Allows all CPUs that the thread was allowed at first.
  void Unpin() const { pthread_setaffinity_np(pthread_self(), sizeof(allowed_), &allowed_); }

 private:
  cpu_set_t allowed_;
  std::vector<int> near_;
};

class Rank {
 public:
  Rank(const Driver& driver, const Nccl& nccl, const RankSeat& seat, int nranks)
      : driver_(driver), nccl_(nccl), seat_(seat), nranks_(nranks) {}

  Error Handle(const Request& request, Reply* reply) {
    switch (request.kind) {
      case RequestKind::kOpen:
        return Open(reply);
      case RequestKind::kUniqueId:
        return nccl_.Check(nccl_.ncclGetUniqueId(&reply->unique_id), "ncclGetUniqueId", nullptr);
      case RequestKind::kConnect:
        return Connect(request);
      case RequestKind::kPrepare:
        return Prepare(request);
      case RequestKind::kRun:
        return Run(request, reply);
      case RequestKind::kQuit:
        return Quit();
    }
    return "unknown request";
  }

 private:
  Error Open(Reply* reply) {
    RETURN_IF_CUDA(cuInit(0));
    RETURN_IF_CUDA(cuDriverGetVersion(&reply->driver_version));
    RETURN_IF_ERROR(
        nccl_.Check(nccl_.ncclGetVersion(&reply->nccl_version), "ncclGetVersion", nullptr));
    int devices = 0;
    RETURN_IF_CUDA(cuDeviceGetCount(&devices));
    if (seat_.device >= devices) {
      return absl::StrCat("there is no GPU ", seat_.device, ": this machine has ", devices);
    }
    int device = 0;
    RETURN_IF_CUDA(cuDeviceGet(&device, seat_.device));
    RETURN_IF_CUDA(cuDeviceGetName(reply->text, sizeof(reply->text), device));
    int multiprocessors = 0;
    RETURN_IF_CUDA(cuDeviceGetAttribute(&multiprocessors, kCudaMultiprocessorCount, device));
    compute_blocks_ = static_cast<unsigned>(multiprocessors);
    RETURN_IF_CUDA(cuDevicePrimaryCtxRetain(&context_, device));
    RETURN_IF_CUDA(cuCtxSetCurrent(context_));
    RETURN_IF_CUDA(cuStreamCreate(&stream_, kCudaStreamNonBlocking));
    RETURN_IF_CUDA(cuStreamCreate(&compute_stream_, kCudaStreamNonBlocking));
    RETURN_IF_CUDA(
        cuMemAlloc(&compute_results_, kElementBytes * kComputeThreads * compute_blocks_));
    char bus_id[32] = {};
    RETURN_IF_CUDA(cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), device));
    processors_.Find(bus_id);
    return {};
  }

  Error Connect(const Request& request) {
    RETURN_IF_ERROR(
        nccl_.Check(nccl_.ncclCommInitRank(&comm_, nranks_, request.unique_id, seat_.rank),
                    "ncclCommInitRank", comm_));
    // NCCL continues without an unusable plugin, and the measurement would always pass.
    const std::string plugin = request.plugin;
    if (plugin == "none") return {};
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(plugin) != std::string::npos) return {};
    }
    return absl::StrCat("NCCL did not load ", plugin,
                        " (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,PROFILE says why)");
  }

  Error Prepare(const Request& request) {
    // Everything that starts a thread inside NCCL, the driver or a plugin runs here, on any
    // processor.
    processors_.Unpin();
    RETURN_IF_ERROR(DropGraph());
    point_ = request.point;
    const uint64_t parts = request.per_peer ? static_cast<uint64_t>(nranks_) : 1;
    RETURN_IF_ERROR(Allocate(request.largest_bytes / kElementBytes * parts));

    if (request.check_values) RETURN_IF_ERROR(Poison());
    RETURN_IF_ERROR(Enqueue());
    RETURN_IF_CUDA(cuStreamSynchronize(stream_));
    if (request.check_values) RETURN_IF_ERROR(CheckValues());
    if (!IsGraph(point_.mode)) return {};
    // Not during the stream's capture.
    if (point_.mode == Mode::kGraphDecode && compute_ == nullptr) RETURN_IF_ERROR(LoadCompute());

    RETURN_IF_CUDA(cuStreamBeginCapture(stream_, kCudaCaptureThreadLocal));
    Error error;
    for (uint32_t i = 0; i < request.graph_operations && error.empty(); ++i) {
      if (point_.mode == Mode::kGraphDecode) {
        error =
            LaunchCompute(stream_, std::min(kLayerBlocks, compute_blocks_), request.layer_rounds);
      }
      if (error.empty()) error = Enqueue();
    }
    RETURN_IF_CUDA(cuStreamEndCapture(stream_, &graph_));
    if (!error.empty()) return error;
    RETURN_IF_CUDA(cuGraphInstantiate(&executable_, graph_, 0));
    if (request.check_values) RETURN_IF_ERROR(Poison());
    RETURN_IF_CUDA(cuGraphLaunch(executable_, stream_));
    RETURN_IF_CUDA(cuStreamSynchronize(stream_));
    return request.check_values ? CheckValues() : Error();
  }

  Error DropGraph() {
    if (executable_ != nullptr) RETURN_IF_CUDA(cuGraphExecDestroy(executable_));
    if (graph_ != nullptr) RETURN_IF_CUDA(cuGraphDestroy(graph_));
    executable_ = nullptr;
    graph_ = nullptr;
    return {};
  }

  Error Allocate(uint64_t count) {
    if (count <= allocated_count_) return {};
    if (allocated_count_ > 0) {
      RETURN_IF_CUDA(cuMemFree(send_));
      RETURN_IF_CUDA(cuMemFree(receive_));
      allocated_count_ = 0;
    }
    RETURN_IF_CUDA(cuMemAlloc(&send_, count * kElementBytes));
    RETURN_IF_CUDA(cuMemAlloc(&receive_, count * kElementBytes));
    allocated_count_ = count;
    std::vector<float> values(std::min(count, kChunkCount));
    for (uint64_t i = 0; i < values.size(); ++i) values[i] = ValueOf(i, seat_.rank);
    for (uint64_t at = 0; at < count; at += values.size()) {
      const uint64_t part = std::min<uint64_t>(values.size(), count - at);
      RETURN_IF_CUDA(cuMemcpyHtoD(send_ + at * kElementBytes, values.data(), part * kElementBytes));
    }
    return {};
  }

  uint64_t Count() const { return point_.bytes / kElementBytes; }

  // Fills the buffer with NaN, so that unwritten elements are detected.
  Error Poison() {
    RETURN_IF_CUDA(cuMemsetD32(receive_, ~0u, ReceiveCount(point_.operation, Count(), nranks_)));
    RETURN_IF_CUDA(cuCtxSynchronize());
    return {};
  }

  Error CheckValues() {
    std::vector<float> got(kChunkCount);
    std::vector<float> expected(kChunkCount);
    uint64_t at = 0;
    for (const Segment& segment : Expected(point_.operation, Count(), seat_.rank, nranks_)) {
      const uint64_t chunk = std::min(segment.count, kChunkCount);
      for (uint64_t i = 0; i < chunk; ++i) expected[i] = segment.period[i % kValuePeriod];
      for (uint64_t done = 0; done < segment.count; done += chunk) {
        const uint64_t part = std::min(chunk, segment.count - done);
        RETURN_IF_CUDA(
            cuMemcpyDtoH(got.data(), receive_ + (at + done) * kElementBytes, part * kElementBytes));
        // Bitwise, because NaN compares unequal to itself.
        if (memcmp(got.data(), expected.data(), part * kElementBytes) == 0) continue;
        for (uint64_t i = 0; i < part; ++i) {
          if (got[i] == expected[i]) continue;
          return absl::StrCat("wrong result at rank ", seat_.rank, ", element ", at + done + i,
                              ": ", got[i], " instead of ", expected[i]);
        }
      }
      at += segment.count;
    }
    return {};
  }

  // Enqueues one operation on the stream.
  Error Enqueue() {
    const auto* send = reinterpret_cast<const char*>(send_);
    auto* receive = reinterpret_cast<char*>(receive_);
    const uint64_t count = Count();
    const int type = kNcclFloat32;
    int result = 0;
    const auto also = [&result](int next) {
      if (result == 0) result = next;
    };
    switch (point_.operation) {
      case Operation::kAllReduce:
        also(nccl_.ncclAllReduce(send, receive, count, type, kNcclSum, comm_, stream_));
        break;
      case Operation::kAllGather:
        also(nccl_.ncclAllGather(send, receive, count, type, comm_, stream_));
        break;
      case Operation::kReduceScatter:
        also(nccl_.ncclReduceScatter(send, receive, count, type, kNcclSum, comm_, stream_));
        break;
      case Operation::kBroadcast:
        also(nccl_.ncclBroadcast(send, receive, count, type, 0, comm_, stream_));
        break;
      case Operation::kAllToAll:
        // As applications do it. ncclAlltoAll exists only since 2.28 and makes the same calls.
        also(nccl_.ncclGroupStart());
        for (int peer = 0; peer < nranks_; ++peer) {
          const uint64_t offset = point_.bytes * static_cast<uint64_t>(peer);
          also(nccl_.ncclSend(send + offset, count, type, peer, comm_, stream_));
          also(nccl_.ncclRecv(receive + offset, count, type, peer, comm_, stream_));
        }
        also(nccl_.ncclGroupEnd());
        break;
      case Operation::kSendRecv: {
        const int next = (seat_.rank + 1) % nranks_;
        const int previous = (seat_.rank + nranks_ - 1) % nranks_;
        also(nccl_.ncclGroupStart());
        also(nccl_.ncclSend(send, count, type, next, comm_, stream_));
        also(nccl_.ncclRecv(receive, count, type, previous, comm_, stream_));
        also(nccl_.ncclGroupEnd());
        break;
      }
    }
    return result == 0 ? Error() : nccl_.Check(result, Name(point_.operation), comm_);
  }

  Error Step() {
    if (IsGraph(point_.mode)) {
      return driver_.Check(driver_.cuGraphLaunch(executable_, stream_), "cuGraphLaunch");
    }
    RETURN_IF_ERROR(Enqueue());
    if (point_.mode != Mode::kSync) return {};
    return driver_.Check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

  // Loads at first use: without compute kernels no PTX translator is needed.
  Error LoadCompute() {
    CudaModule module = nullptr;
    const int result = driver_.cuModuleLoadData(&module, kComputePtx);
    if (result != 0) {
      return absl::StrCat(driver_.Check(result, "cuModuleLoadData"),
                          "; without the compute kernel: --compute=without");
    }
    return driver_.Check(driver_.cuModuleGetFunction(&compute_, module, "compute"),
                         "cuModuleGetFunction");
  }

  Error LaunchCompute(CudaStream stream, unsigned blocks, uint32_t rounds) {
    if (compute_ == nullptr) RETURN_IF_ERROR(LoadCompute());
    void* parameters[] = {&compute_results_, &rounds};
    return driver_.Check(driver_.cuLaunchKernel(compute_, blocks, 1, 1, kComputeThreads, 1, 1, 0,
                                                stream, parameters, nullptr),
                         "cuLaunchKernel");
  }

  Error Run(const Request& request, Reply* reply) {
    processors_.Pin(request.processor, seat_.rank, nranks_);
    // Takes the GPU back from another process, raises its clocks, and synchronizes the ranks.
    const auto compute_once = [&] {
      return LaunchCompute(compute_stream_, compute_blocks_, request.compute_rounds);
    };
    if (request.compute_kernels > 0) RETURN_IF_ERROR(compute_once());
    for (uint32_t i = 0; i < request.warmup_steps; ++i) RETURN_IF_ERROR(Step());
    RETURN_IF_CUDA(cuStreamSynchronize(compute_stream_));
    RETURN_IF_CUDA(cuStreamSynchronize(stream_));

    const double begin_us = NowUs();
    uint64_t launched = 0;
    const auto compute_until = [&](uint64_t kernels) -> Error {
      for (; launched < kernels; ++launched) RETURN_IF_ERROR(compute_once());
      return {};
    };
    for (uint64_t i = 0; i < request.steps; ++i) {
      // Spread over the steps, so that neither stream's queue fills before the other's.
      RETURN_IF_ERROR(
          compute_until((request.compute_kernels * (i + 1) + request.steps - 1) / request.steps));
      RETURN_IF_ERROR(Step());
    }
    RETURN_IF_ERROR(compute_until(request.compute_kernels));
    RETURN_IF_CUDA(cuStreamSynchronize(stream_));
    reply->operations_us = NowUs() - begin_us;
    RETURN_IF_CUDA(cuStreamSynchronize(compute_stream_));
    reply->total_us = NowUs() - begin_us;
    return {};
  }

  Error Quit() {
    RETURN_IF_ERROR(DropGraph());
    if (comm_ == nullptr) return {};
    NcclComm comm = comm_;
    comm_ = nullptr;
    return nccl_.Check(nccl_.ncclCommDestroy(comm), "ncclCommDestroy", nullptr);
  }

  const Driver& driver_;
  const Nccl& nccl_;
  const RankSeat seat_;
  const int nranks_;

  CudaContext context_ = nullptr;
  CudaStream stream_ = nullptr;
  CudaStream compute_stream_ = nullptr;
  CudaFunction compute_ = nullptr;
  CudaPointer compute_results_ = 0;
  unsigned compute_blocks_ = 0;
  NcclComm comm_ = nullptr;
  Processors processors_;

  Point point_{};
  CudaGraph graph_ = nullptr;
  CudaGraphExecutable executable_ = nullptr;
  CudaPointer send_ = 0;
  CudaPointer receive_ = 0;
  uint64_t allocated_count_ = 0;
};

void Serve(const Driver& driver, const Nccl& nccl, const Error& load_error, const RankSeat& seat,
           int nranks) {
  Rank rank(driver, nccl, seat, nranks);
  Request request;
  while (true) {
    const ssize_t size = recv(seat.socket, &request, sizeof(request), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size != static_cast<ssize_t>(sizeof(request))) return;
    Reply reply{};
    const Error error = load_error.empty() ? rank.Handle(request, &reply) : load_error;
    reply.ok = error.empty();
    if (!reply.ok) snprintf(reply.text, sizeof(reply.text), "%s", error.c_str());
    if (send(seat.socket, &reply, sizeof(reply), MSG_NOSIGNAL) < 0) return;
    if (request.kind == RequestKind::kQuit) return;
  }
}

}  // namespace

int ServeRanks(const std::vector<RankSeat>& seats, int nranks, const std::string& nccl_path) {
  static Driver driver;
  static Nccl nccl;
  Error error = driver.Load();
  if (error.empty()) error = nccl.Load(nccl_path);
  // With several ranks none uses the main thread, so that all have the same kind of thread.
  if (seats.size() == 1) {
    Serve(driver, nccl, error, seats[0], nranks);
    return 0;
  }
  std::vector<std::thread> threads;
  threads.reserve(seats.size());
  for (const RankSeat& seat : seats) {
    threads.emplace_back([&, seat] { Serve(driver, nccl, error, seat, nranks); });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

}  // namespace nccl_pulse::overhead
