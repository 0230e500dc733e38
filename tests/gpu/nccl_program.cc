// A plain NCCL program, one process a rank, that keeps books on the calls it makes.
//
//   nccl_program --rank=R --nranks=N --gpu=G --exchange=FOLDER --phases=A,B,...
//                [--library-path=FOLDER:FOLDER]
//
// After each phase it has waited for the GPU, prints one line of JSON, the sums since its start
// (see ledger.cc), and goes on when a line comes on standard input, so that metrics can be read in
// between. FOLDER is empty at first and shared by the ranks of one run, which exchange NCCL's
// unique ids there. Phases:
//
//   collectives  five collectives, sizes at and beside the bounds of size classes, eight data types
//   p2p          neighbours in a group and alone; all-to-all with self sends
//   group        five different collectives in one group
//   split        ncclCommSplit with and without splitShare, and what is left after a destroy
//   recreate     destroys all communicators, then makes one anew and one without a name
//   nonblocking  a communicator with config.blocking = 0
//   graph        ten AllReduces captured, the graph replayed twenty times
//   threads      three communicators, a thread for each
//   broadcast    a communicator whose last calls are Broadcasts, and one with a group of Broadcasts
//                from every rank, which newer NCCLs make one operation of
//   exit         leaves without destroying anything; only as the last phase
//
// Results are copied back and compared. Exit status: 0 right, 1 wrong results, 2 bad arguments or
// end of input, 3 an error of NCCL or CUDA.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/dynamic_api.h"
#include "tests/gpu/id_exchange.h"
#include "tests/gpu/ledger.h"
#include "tests/gpu/nccl_api.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kMaxBytes = 8 << 20;  // of one call, per rank

constexpr int kExitWrongResult = 1;
constexpr int kExitUsage = 2;
constexpr int kExitApi = 3;

Api g_api;

[[noreturn]] void Die(int status, const std::string& message) {
  std::cerr << "nccl_program: " << message << std::endl;
  // Other threads may be inside NCCL: no destructors.
  _exit(status);
}

void CheckCuda(CudaError error, const char* what) {
  if (error != 0) Die(kExitApi, std::string(what) + ": " + g_api.cudaGetErrorString(error));
}

void CheckNccl(NcclResult result, const char* what, NcclComm comm = nullptr) {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  Die(kExitApi, std::string(what) + ": " + g_api.ncclGetErrorString(result) + ", " +
                    g_api.ncclGetLastError(comm));
}

// A non-blocking communicator's calls return before they are done.
void WaitForCall(NcclComm comm, const char* what) {
  NcclResult result = kNcclInProgress;
  while (true) {
    CheckNccl(g_api.ncclCommGetAsyncError(comm, &result), what, comm);
    if (result != kNcclInProgress) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  CheckNccl(result, what, comm);
}

// ---- values -------------------------------------------------------------------------------------

// Small enough for every data type to add up over eight ranks without rounding.
int ValueOf(int rank, uint64_t i) { return (rank + 1) * static_cast<int>(i % 3 + 1); }

int SumOf(int nranks, uint64_t i) {
  return nranks * (nranks + 1) / 2 * static_cast<int>(i % 3 + 1);
}

template <typename T>
void Put(char* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

uint16_t HalfBits(int value) {  // of an integer from 0 to 2048
  if (value == 0) return 0;
  int exponent = 0;
  while (value >> (exponent + 1) != 0) ++exponent;
  const int mantissa = (value << 10 >> exponent) & 0x3ff;
  return static_cast<uint16_t>((exponent + 15) << 10 | mantissa);
}

uint16_t BfloatBits(int value) {  // of an integer from 0 to 256
  const auto exact = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &exact, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

void Encode(int datatype, int value, char* to) {
  switch (datatype) {
    case kInt8:
    case kUint8:
      return Put(to, static_cast<int8_t>(value));
    case kFloat16:
      return Put(to, HalfBits(value));
    case kBfloat16:
      return Put(to, BfloatBits(value));
    case kFloat32:
      return Put(to, static_cast<float>(value));
    case kFloat64:
      return Put(to, static_cast<double>(value));
    case kInt64:
    case kUint64:
      return Put(to, static_cast<int64_t>(value));
    default:
      return Put(to, static_cast<int32_t>(value));
  }
}

std::vector<char> Encoded(int datatype, uint64_t count,
                          const std::function<int(uint64_t)>& value_of) {
  const uint64_t element = DatatypeBytes(datatype);
  std::vector<char> bytes(count * element);
  for (uint64_t i = 0; i < count; ++i) Encode(datatype, value_of(i), &bytes[i * element]);
  return bytes;
}

// ---- communicators ------------------------------------------------------------------------------

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
constexpr Op kAllOps[] = {Op::kAllReduce, Op::kAllGather, Op::kReduceScatter, Op::kBroadcast,
                          Op::kReduce};

struct Shape {
  int datatype;
  uint64_t bytes;  // of one call, as NCCL's user counts: per rank for AllGather and ReduceScatter

  uint64_t count() const { return bytes / DatatypeBytes(datatype); }
};

// A stream, buffers, and what to do with them. Belongs to one thread.
class Worker {
 public:
  Worker(int gpu, int nranks) : bytes_(kMaxBytes * static_cast<uint64_t>(nranks)) {
    CheckCuda(g_api.cudaSetDevice(gpu), "cudaSetDevice");
    CheckCuda(g_api.cudaStreamCreateWithFlags(&stream_, kStreamNonBlocking), "cudaStreamCreate");
    CheckCuda(g_api.cudaMalloc(&send_, bytes_), "cudaMalloc");
    CheckCuda(g_api.cudaMalloc(&recv_, bytes_), "cudaMalloc");
  }

  CudaStream stream() const { return stream_; }
  char* send() const { return static_cast<char*>(send_); }
  char* recv() const { return static_cast<char*>(recv_); }

  void Synchronize() { CheckCuda(g_api.cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  void SetSend(const std::vector<char>& bytes) {
    CheckCuda(g_api.cudaMemcpyAsync(send_, bytes.data(), bytes.size(), kCopyDefault, stream_),
              "cudaMemcpyAsync");
    Synchronize();
  }
  void ClearRecv(uint64_t bytes) {
    CheckCuda(g_api.cudaMemsetAsync(recv_, 0x55, bytes, stream_), "cudaMemsetAsync");
  }
  void CheckRecv(const std::vector<char>& expected, const std::string& what, uint64_t offset = 0) {
    // Waited for here and not within the copy: that one holds a lock of the driver while it waits,
    // and with several communicators on a GPU two ranks could hold each other up for ever.
    Synchronize();
    if (expected.empty()) return;
    std::vector<char> found(expected.size());
    CheckCuda(
        g_api.cudaMemcpyAsync(found.data(), recv() + offset, found.size(), kCopyDefault, stream_),
        "cudaMemcpyAsync");
    Synchronize();
    ++checked_;
    if (found == expected) return;
    ++wrong_;
    std::cerr << "nccl_program: wrong result of " << what << std::endl;
  }

  void GroupStart(Communicator& comm) {
    CheckNccl(g_api.ncclGroupStart(), "ncclGroupStart");
    comm.is_in_group = true;
    comm.calls_in_group = 0;
    comm.broadcasts_in_group = 0;
  }
  void GroupEnd(Communicator& comm) {
    CheckNccl(g_api.ncclGroupEnd(), "ncclGroupEnd");
    comm.is_in_group = false;
    WaitForCall(comm.handle, "ncclGroupEnd");
    comm.ledger.Launch(comm.calls_in_group, comm.broadcasts_in_group, false);
  }

  void Collective(Communicator& comm, Op op, Shape shape, int root, const void* send, void* recv,
                  bool captured = false) {
    const uint64_t n = shape.count();
    const int type = shape.datatype;
    switch (op) {
      case Op::kAllReduce:
        return Made(comm, "AllReduce", shape, captured, false,
                    g_api.ncclAllReduce(send, recv, n, type, kSum, comm.handle, stream_));
      case Op::kAllGather:
        return Made(comm, "AllGather", shape, captured, false,
                    g_api.ncclAllGather(send, recv, n, type, comm.handle, stream_));
      case Op::kReduceScatter:
        return Made(comm, "ReduceScatter", shape, captured, false,
                    g_api.ncclReduceScatter(send, recv, n, type, kSum, comm.handle, stream_));
      case Op::kBroadcast:
        return Made(comm, "Broadcast", shape, captured, false,
                    g_api.ncclBroadcast(send, recv, n, type, root, comm.handle, stream_));
      case Op::kReduce:
        return Made(comm, "Reduce", shape, captured, false,
                    g_api.ncclReduce(send, recv, n, type, kSum, root, comm.handle, stream_));
    }
  }
  void Send(Communicator& comm, Shape shape, int peer, const void* send) {
    Made(comm, "Send", shape, false, peer == comm.rank(),
         g_api.ncclSend(send, shape.count(), shape.datatype, peer, comm.handle, stream_));
  }
  void Recv(Communicator& comm, Shape shape, int peer, void* recv) {
    Made(comm, "Recv", shape, false, peer == comm.rank(),
         g_api.ncclRecv(recv, shape.count(), shape.datatype, peer, comm.handle, stream_));
  }

  // What the collective takes and what it must give, element by element.
  static std::vector<char> Input(const Communicator& comm, Op op, Shape shape) {
    const uint64_t blocks = op == Op::kReduceScatter ? static_cast<uint64_t>(comm.nranks()) : 1;
    return Encoded(shape.datatype, shape.count() * blocks,
                   [&](uint64_t i) { return ValueOf(comm.rank(), i); });
  }
  static std::vector<char> Output(const Communicator& comm, Op op, Shape shape, int root) {
    const uint64_t n = shape.count();
    const int nranks = comm.nranks();
    switch (op) {
      case Op::kAllGather:
        return Encoded(shape.datatype, n * static_cast<uint64_t>(nranks),
                       [&](uint64_t i) { return ValueOf(static_cast<int>(i / n), i % n); });
      case Op::kReduceScatter:
        return Encoded(shape.datatype, n, [&](uint64_t i) {
          return SumOf(nranks, n * static_cast<uint64_t>(comm.rank()) + i);
        });
      case Op::kBroadcast:
        return Encoded(shape.datatype, n, [&](uint64_t i) { return ValueOf(root, i); });
      case Op::kReduce:
        if (comm.rank() != root) return {};
        break;
      case Op::kAllReduce:
        break;
    }
    return Encoded(shape.datatype, n, [&](uint64_t i) { return SumOf(nranks, i); });
  }

  // Every collective in every shape, `repeats` times without waiting in between.
  void Sweep(Communicator& comm, const std::vector<Shape>& shapes, int repeats) {
    for (const Shape& shape : shapes) {
      for (const Op op : kAllOps) {
        SetSend(Input(comm, op, shape));
        int root = 0;
        for (int repeat = 0; repeat < repeats; ++repeat) {
          root = (static_cast<int>(op) + repeat) % comm.nranks();
          ClearRecv(shape.bytes);
          Collective(comm, op, shape, root, send_, recv_);
        }
        CheckRecv(Output(comm, op, shape, root), comm.ledger.name + " collective");
      }
    }
  }

  uint64_t checked() const { return checked_; }
  uint64_t wrong() const { return wrong_; }
  void AddChecks(const Worker& other) {
    checked_ += other.checked_;
    wrong_ += other.wrong_;
  }

 private:
  void Made(Communicator& comm, const char* op, Shape shape, bool captured, bool to_self,
            NcclResult result) {
    CheckNccl(result, op, comm.handle);
    CallCount& count = comm.ledger.Call(op, shape.datatype, shape.count(), captured);
    if (to_self) ++count.to_self;
    const uint64_t broadcasts = std::strcmp(op, "Broadcast") == 0 ? 1 : 0;
    if (comm.is_in_group) {
      ++comm.calls_in_group;
      comm.broadcasts_in_group += broadcasts;
    } else {
      WaitForCall(comm.handle, op);
      // A captured call is launched by the graph, where nobody sees it.
      if (!captured) comm.ledger.Launch(1, broadcasts, true);
    }
  }

  const uint64_t bytes_;
  CudaStream stream_ = nullptr;
  void* send_ = nullptr;
  void* recv_ = nullptr;
  uint64_t checked_ = 0;
  uint64_t wrong_ = 0;
};

// ---- the program --------------------------------------------------------------------------------

struct Options {
  int rank = -1;
  int nranks = 0;
  int gpu = 0;
  std::string exchange;
  std::string library_path;
  std::vector<std::string> phases;
};

class Program {
 public:
  explicit Program(const Options& options)
      : options_(options), worker_(options.gpu, options.nranks) {}

  // False: there is no such phase.
  bool Run(const std::string& phase) {
    if (phase == "collectives") {
      Collectives();
    } else if (phase == "p2p") {
      PointToPoint(NewCommunicator("p2p"));
    } else if (phase == "group") {
      Groups(NewCommunicator("group"));
    } else if (phase == "split") {
      Split();
    } else if (phase == "recreate") {
      Recreate();
    } else if (phase == "nonblocking") {
      NonBlocking();
    } else if (phase == "graph") {
      Graph();
    } else if (phase == "threads") {
      Threads();
    } else if (phase == "broadcast") {
      Broadcasts();
    } else if (phase == "exit") {
      worker_.Sweep(Main(), kFewShapes, 1);
    } else {
      return false;
    }
    worker_.Synchronize();
    return true;
  }

  void Report(const std::string& phase) const {
    int version = 0;
    g_api.ncclGetVersion(&version);
    std::ostringstream line;
    line << "{\"phase\":\"" << phase << "\",\"rank\":" << options_.rank << ",\"pid\":" << getpid()
         << ",\"nccl\":" << version << ",\"checked\":" << worker_.checked()
         << ",\"wrong\":" << worker_.wrong() << ",\"communicators\":[";
    const char* separator = "";
    for (const Communicator& comm : communicators_) {
      line << separator << comm.ledger.ToJson();
      separator = ",";
    }
    line << "]}\n";
    std::cout << line.str() << std::flush;
  }

  void DestroyAll() {
    for (Communicator& comm : communicators_) Destroy(comm);
  }

  bool right() const { return worker_.wrong() == 0; }

 private:
  static const std::vector<Shape> kFewShapes;

  static std::string Exchanged(const std::string& folder, int number) {
    return folder + "/id-" + std::to_string(number);
  }

  // All ranks make their communicators in the same order, so a number names one.
  NcclUniqueId ExchangeId() {
    const std::string path = Exchanged(options_.exchange, exchanged_++);
    NcclUniqueId id{};
    if (options_.rank == 0) {
      CheckNccl(g_api.ncclGetUniqueId(&id), "ncclGetUniqueId");
      if (!PublishId(path, id)) Die(kExitUsage, "cannot write " + path);
    } else if (!AwaitId(path, &id)) {
      Die(kExitUsage, "cannot read " + path);
    }
    return id;
  }

  Communicator& Adopt(NcclComm handle, Communicator& comm) {
    comm.handle = handle;
    WaitForCall(handle, "init");
    CheckNccl(g_api.ncclCommUserRank(handle, &comm.ledger.rank), "ncclCommUserRank");
    CheckNccl(g_api.ncclCommCount(handle, &comm.ledger.nranks), "ncclCommCount");
    return comm;
  }

  // NCCL keeps the pointer to the name; a deque's elements stay where they are.
  Communicator& NewCommunicator(const std::string& name, bool blocking = true) {
    const NcclUniqueId id = ExchangeId();
    Communicator& comm = communicators_.emplace_back();
    comm.ledger.name = name;
    comm.ledger.blocking = blocking;
    NcclComm handle = nullptr;
    if (name.empty()) {
      CheckNccl(g_api.ncclCommInitRank(&handle, options_.nranks, id, options_.rank),
                "ncclCommInitRank");
    } else {
      NcclConfig config;
      config.comm_name = comm.ledger.name.c_str();
      if (!blocking) config.blocking = 0;
      CheckNccl(g_api.ncclCommInitRankConfig(&handle, options_.nranks, id, options_.rank, &config),
                "ncclCommInitRankConfig");
    }
    return Adopt(handle, comm);
  }

  Communicator& NewSplit(Communicator& parent, const std::string& name, bool share) {
    // Halves where each has two ranks, and ranks in reverse order.
    const int color = parent.nranks() >= 4 ? parent.rank() % 2 : 0;
    Communicator& comm = communicators_.emplace_back();
    comm.ledger.name = name + "-" + std::to_string(color);
    NcclConfig config;
    config.comm_name = comm.ledger.name.c_str();
    config.split_share = share ? 1 : 0;
    NcclComm handle = nullptr;
    CheckNccl(g_api.ncclCommSplit(parent.handle, color, parent.nranks() - parent.rank(), &handle,
                                  &config),
              "ncclCommSplit", parent.handle);
    return Adopt(handle, comm);
  }

  static void Destroy(Communicator& comm) {
    if (comm.handle == nullptr) return;
    CheckNccl(g_api.ncclCommFinalize(comm.handle), "ncclCommFinalize", comm.handle);
    WaitForCall(comm.handle, "ncclCommFinalize");
    CheckNccl(g_api.ncclCommDestroy(comm.handle), "ncclCommDestroy");
    comm.handle = nullptr;
    comm.ledger.destroyed = true;
  }

  Communicator& Main() {
    if (main_ == nullptr) main_ = &NewCommunicator("main");
    return *main_;
  }

  // Several communicators: each has room for about a hundred series, far more than a job's.
  void Collectives() {
    worker_.Sweep(NewCommunicator("small"),
                  {{kFloat32, 16}, {kFloat32, 4096}, {kFloat32, 4100}, {kFloat32, 65536}}, 3);
    worker_.Sweep(NewCommunicator("large"),
                  {{kFloat32, 1 << 20}, {kFloat32, (1 << 20) + 4}, {kFloat32, kMaxBytes}}, 3);
    worker_.Sweep(NewCommunicator("datatypes"),
                  {{kInt8, 3000},
                   {kUint8, 3000},
                   {kInt32, 20000},
                   {kInt64, 20000},
                   {kFloat16, 20000},
                   {kFloat64, 20000},
                   {kBfloat16, 20000}},
                  2);
  }

  void PointToPoint(Communicator& comm) {
    const int n = comm.nranks();
    const int rank = comm.rank();
    const int next = (rank + 1) % n;
    const int previous = (rank + n - 1) % n;
    for (const Shape& shape :
         {Shape{kFloat32, 4096}, Shape{kInt32, 100000}, Shape{kFloat32, 2 << 20}}) {
      worker_.SetSend(
          Encoded(shape.datatype, shape.count(), [&](uint64_t i) { return ValueOf(rank, i); }));
      worker_.ClearRecv(shape.bytes);
      for (int repeat = 0; repeat < 4; ++repeat) {
        worker_.GroupStart(comm);
        worker_.Send(comm, shape, next, worker_.send());
        worker_.Recv(comm, shape, previous, worker_.recv());
        worker_.GroupEnd(comm);
      }
      worker_.CheckRecv(
          Encoded(shape.datatype, shape.count(), [&](uint64_t i) { return ValueOf(previous, i); }),
          "Send and Recv");
    }
    if (n % 2 == 0) {
      const Shape shape{kFloat64, 8000};
      for (int repeat = 0; repeat < 3; ++repeat) {
        if (rank % 2 == 0) {
          worker_.Send(comm, shape, rank + 1, worker_.send());
        } else {
          worker_.Recv(comm, shape, rank - 1, worker_.recv());
        }
      }
      worker_.Synchronize();
    }
    const Shape shape{kFloat32, 40000};
    const auto value_of = [&](int from, int to, uint64_t i) { return ValueOf(from * n + to, i); };
    const auto blocks = [&](bool sent) {
      return Encoded(shape.datatype, shape.count() * static_cast<uint64_t>(n), [&](uint64_t i) {
        const int block = static_cast<int>(i / shape.count());
        return sent ? value_of(rank, block, i % shape.count())
                    : value_of(block, rank, i % shape.count());
      });
    };
    worker_.SetSend(blocks(true));
    for (int repeat = 0; repeat < 4; ++repeat) {
      worker_.GroupStart(comm);
      for (int peer = 0; peer < n; ++peer) {
        const uint64_t offset = shape.bytes * static_cast<uint64_t>(peer);
        worker_.Send(comm, shape, peer, worker_.send() + offset);
        worker_.Recv(comm, shape, peer, worker_.recv() + offset);
      }
      worker_.GroupEnd(comm);
    }
    worker_.CheckRecv(blocks(false), "all-to-all");
  }

  void Groups(Communicator& comm) {
    const Shape shape{kFloat32, 200000};
    const uint64_t place = shape.bytes * static_cast<uint64_t>(comm.nranks());
    // The longest input is also everybody else's.
    worker_.SetSend(Worker::Input(comm, Op::kReduceScatter, shape));
    for (int repeat = 0; repeat < 6; ++repeat) {
      worker_.GroupStart(comm);
      for (const Op op : kAllOps) {
        worker_.Collective(comm, op, shape, repeat % comm.nranks(), worker_.send(),
                           worker_.recv() + place * static_cast<uint64_t>(op));
      }
      worker_.GroupEnd(comm);
    }
    const int root = 5 % comm.nranks();
    for (const Op op : kAllOps) {
      worker_.CheckRecv(Worker::Output(comm, op, shape, root), "group",
                        place * static_cast<uint64_t>(op));
    }
  }

  void Split() {
    Communicator& own = NewSplit(Main(), "split", false);
    worker_.Sweep(own, kFewShapes, 2);
    Communicator& shared = NewSplit(Main(), "share", true);
    worker_.Sweep(shared, kFewShapes, 2);
    worker_.Sweep(Main(), kFewShapes, 1);
    Destroy(own);
    PointToPoint(shared);
    Destroy(shared);
    worker_.Sweep(Main(), kFewShapes, 1);
  }

  void Recreate() {
    DestroyAll();
    main_ = &NewCommunicator("main-again");
    worker_.Sweep(Main(), kFewShapes, 2);
    worker_.Sweep(NewCommunicator(""), kFewShapes, 3);
  }

  void NonBlocking() {
    Communicator& comm = NewCommunicator("nonblocking", false);
    worker_.Sweep(comm, kFewShapes, 4);
    Groups(comm);
    PointToPoint(comm);
    Destroy(comm);
  }

  void Graph() {
    constexpr int kCaptured = 10;
    constexpr int kReplays = 20;
    const Shape shape{kFloat32, 300000};
    Communicator& comm = NewCommunicator("graph");
    worker_.Sweep(comm, {shape}, 1);
    worker_.SetSend(Worker::Input(comm, Op::kAllReduce, shape));

    CudaGraph graph = nullptr;
    CudaGraphExec exec = nullptr;
    CheckCuda(g_api.cudaStreamBeginCapture(worker_.stream(), kCaptureModeGlobal), "begin capture");
    for (uint64_t i = 0; i < kCaptured; ++i) {
      worker_.Collective(comm, Op::kAllReduce, shape, 0, worker_.send(),
                         worker_.recv() + shape.bytes * i, true);
    }
    CheckCuda(g_api.cudaStreamEndCapture(worker_.stream(), &graph), "end capture");
    CheckCuda(g_api.cudaGraphInstantiateWithFlags(&exec, graph, 0), "instantiate graph");
    CallCount& captured =
        comm.ledger.calls[{"AllReduce", DatatypeName(shape.datatype), shape.bytes, true}];
    const std::vector<char> output = Worker::Output(comm, Op::kAllReduce, shape, 0);
    for (int replay = 0; replay < kReplays;) {
      worker_.ClearRecv(shape.bytes * kCaptured);
      for (int i = 0; i < 5; ++i, ++replay) {
        CheckCuda(g_api.cudaGraphLaunch(exec, worker_.stream()), "launch graph");
        captured.replays += kCaptured;
      }
      for (uint64_t i = 0; i < kCaptured; ++i) {
        worker_.CheckRecv(output, "graph", shape.bytes * i);
      }
    }
    worker_.Sweep(comm, {shape}, 1);  // eager beside an existing graph
    CheckCuda(g_api.cudaGraphExecDestroy(exec), "destroy graph");
    CheckCuda(g_api.cudaGraphDestroy(graph), "destroy graph");
    worker_.Sweep(comm, {shape}, 1);
    Destroy(comm);
  }

  void Threads() {
    constexpr int kThreads = 3;
    const Shape shape{kFloat32, 65536};
    std::vector<Communicator*> comms;
    for (int i = 0; i < kThreads; ++i) {
      comms.push_back(&NewCommunicator("thread-" + std::to_string(i)));
      // The first operation connects and allocates, which two ranks must not do in different
      // orders.
      worker_.Sweep(*comms.back(), {shape}, 1);
    }
    std::deque<Worker> workers;
    for (int i = 0; i < kThreads; ++i) workers.emplace_back(options_.gpu, options_.nranks);
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([this, &worker = workers[i], &comm = *comms[i], &shape] {
        CheckCuda(g_api.cudaSetDevice(options_.gpu), "cudaSetDevice");
        for (int round = 0; round < 3; ++round) worker.Sweep(comm, {shape}, 5);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Worker& worker : workers) worker_.AddChecks(worker);
  }

  void Broadcasts() {
    const Shape shape{kFloat32, 100000};
    Communicator& last = NewCommunicator("broadcast-last");
    worker_.SetSend(Worker::Input(last, Op::kBroadcast, shape));
    worker_.Collective(last, Op::kAllReduce, shape, 0, worker_.send(), worker_.recv());
    for (int root = 0; root < last.nranks(); ++root) {
      worker_.ClearRecv(shape.bytes);
      worker_.Collective(last, Op::kBroadcast, shape, root, worker_.send(), worker_.recv());
      worker_.CheckRecv(Worker::Output(last, Op::kBroadcast, shape, root), "Broadcast");
    }

    Communicator& roots = NewCommunicator("broadcast-roots");
    const auto place = [&](int root) { return shape.bytes * static_cast<uint64_t>(root); };
    worker_.GroupStart(roots);
    for (int root = 0; root < roots.nranks(); ++root) {
      worker_.Collective(roots, Op::kBroadcast, shape, root, worker_.send(),
                         worker_.recv() + place(root));
    }
    worker_.GroupEnd(roots);
    for (int root = 0; root < roots.nranks(); ++root) {
      worker_.CheckRecv(Worker::Output(roots, Op::kBroadcast, shape, root), "group of Broadcasts",
                        place(root));
    }
    worker_.Sweep(roots, {shape}, 1);
  }

  const Options options_;
  Worker worker_;
  std::deque<Communicator> communicators_;
  Communicator* main_ = nullptr;
  int exchanged_ = 0;
};

const std::vector<Shape> Program::kFewShapes = {{kFloat32, 8192}, {kFloat32, 500000}};

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) return false;
    const std::string name = argument.substr(0, equals);
    const std::string value = argument.substr(equals + 1);
    if (name == "--rank") {
      options->rank = std::atoi(value.c_str());
    } else if (name == "--nranks") {
      options->nranks = std::atoi(value.c_str());
    } else if (name == "--gpu") {
      options->gpu = std::atoi(value.c_str());
    } else if (name == "--exchange") {
      options->exchange = value;
    } else if (name == "--library-path") {
      options->library_path = value;
    } else if (name == "--phases") {
      std::istringstream list(value);
      for (std::string phase; std::getline(list, phase, ',');) options->phases.push_back(phase);
    } else {
      return false;
    }
  }
  return options->rank >= 0 && options->rank < options->nranks && !options->exchange.empty() &&
         !options->phases.empty();
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    Die(kExitUsage,
        "usage: --rank=R --nranks=N --gpu=G --exchange=FOLDER --phases=A,B "
        "[--library-path=FOLDER:FOLDER]");
  }
  std::string error;
  if (!LoadApi(options.library_path, &g_api, &error)) Die(kExitApi, error);

  auto* program = new Program(options);  // not destroyed: "exit" leaves everything as it is
  for (const std::string& phase : options.phases) {
    if (!program->Run(phase)) Die(kExitUsage, "no phase " + phase);
    program->Report(phase);
    std::string line;
    if (!std::getline(std::cin, line)) Die(kExitUsage, "end of input");
  }
  if (options.phases.back() != "exit") program->DestroyAll();
  return program->right() ? 0 : kExitWrongResult;
}

}  // namespace
}  // namespace nccl_pulse

int main(int argc, char** argv) { return nccl_pulse::Main(argc, argv); }
