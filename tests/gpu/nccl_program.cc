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

#include <cstdint>
#include <deque>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/ledger.h"
#include "tests/gpu/nccl_api.h"
#include "tests/gpu/nccl_worker.h"
#include "tests/gpu/rank.h"

namespace nccl_pulse {
namespace {

struct Options : RankFlags {
  std::vector<std::string> phases;
};

class Program {
 public:
  explicit Program(const Options& options)
      : options_(options), worker_(options.gpu, options.nranks), communicators_(options) {}

  // False: there is no such phase.
  bool Run(const std::string& phase) {
    if (phase == "collectives") {
      Collectives();
    } else if (phase == "p2p") {
      PointToPoint(communicators_.New("p2p"));
    } else if (phase == "group") {
      Groups(communicators_.New("group"));
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
    for (const Communicator& comm : communicators_.all()) {
      line << separator << comm.ledger.ToJson();
      separator = ",";
    }
    line << "]}\n";
    std::cout << line.str() << std::flush;
  }

  void DestroyAll() {
    for (Communicator& comm : communicators_.all()) Communicators::Destroy(comm);
  }

  bool right() const { return worker_.wrong() == 0; }

 private:
  static const std::vector<Shape> kFewShapes;

  Communicator& Main() {
    if (main_ == nullptr) main_ = &communicators_.New("main");
    return *main_;
  }

  // Several communicators: each has room for about a hundred series, far more than a job's.
  void Collectives() {
    worker_.Sweep(communicators_.New("small"),
                  {{kFloat32, 16}, {kFloat32, 4096}, {kFloat32, 4100}, {kFloat32, 65536}}, 3);
    worker_.Sweep(communicators_.New("large"),
                  {{kFloat32, 1 << 20}, {kFloat32, (1 << 20) + 4}, {kFloat32, kMaxBytes}}, 3);
    worker_.Sweep(communicators_.New("datatypes"),
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
    Communicator& own = communicators_.NewSplit(Main(), "split", false);
    worker_.Sweep(own, kFewShapes, 2);
    Communicator& shared = communicators_.NewSplit(Main(), "share", true);
    worker_.Sweep(shared, kFewShapes, 2);
    worker_.Sweep(Main(), kFewShapes, 1);
    Communicators::Destroy(own);
    PointToPoint(shared);
    Communicators::Destroy(shared);
    worker_.Sweep(Main(), kFewShapes, 1);
  }

  void Recreate() {
    DestroyAll();
    main_ = &communicators_.New("main-again");
    worker_.Sweep(Main(), kFewShapes, 2);
    worker_.Sweep(communicators_.New(""), kFewShapes, 3);
  }

  void NonBlocking() {
    Communicator& comm = communicators_.New("nonblocking", false);
    worker_.Sweep(comm, kFewShapes, 4);
    Groups(comm);
    PointToPoint(comm);
    Communicators::Destroy(comm);
  }

  void Graph() {
    constexpr int kCaptured = 10;
    constexpr int kReplays = 20;
    const Shape shape{kFloat32, 300000};
    Communicator& comm = communicators_.New("graph");
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
    Communicators::Destroy(comm);
  }

  void Threads() {
    constexpr int kThreads = 3;
    const Shape shape{kFloat32, 65536};
    std::vector<Communicator*> comms;
    for (int i = 0; i < kThreads; ++i) {
      comms.push_back(&communicators_.New("thread-" + std::to_string(i)));
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
    Communicator& last = communicators_.New("broadcast-last");
    worker_.SetSend(Worker::Input(last, Op::kBroadcast, shape));
    worker_.Collective(last, Op::kAllReduce, shape, 0, worker_.send(), worker_.recv());
    for (int root = 0; root < last.nranks(); ++root) {
      worker_.ClearRecv(shape.bytes);
      worker_.Collective(last, Op::kBroadcast, shape, root, worker_.send(), worker_.recv());
      worker_.CheckRecv(Worker::Output(last, Op::kBroadcast, shape, root), "Broadcast");
    }

    Communicator& roots = communicators_.New("broadcast-roots");
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
  Communicators communicators_;
  Communicator* main_ = nullptr;
};

const std::vector<Shape> Program::kFewShapes = {{kFloat32, 8192}, {kFloat32, 500000}};

int Main(int argc, char** argv) {
  Options options;
  ReadFlags(argc, argv, &options,
            {{"--phases", [&](const std::string& v) { options.phases = Listed(v); }}});
  if (options.phases.empty()) Die(kExitUsage, "--phases=A,B is needed");
  Begin(options, 0);                     // check.py ends it
  auto* program = new Program(options);  // not destroyed: "exit" leaves everything as it is
  RunPhases(options.phases, [&](const std::string& phase) {
    if (!program->Run(phase)) return false;
    program->Report(phase);
    return true;
  });
  if (options.phases.back() != "exit") program->DestroyAll();
  return program->right() ? 0 : kExitWrongResult;
}

}  // namespace
}  // namespace nccl_pulse

// "exit" leaves streams and memory as they are, so a leak checker would find them.
extern "C" int
__lsan_is_turned_off();  // NOLINT(bugprone-reserved-identifier,readability-identifier-naming): its name, lsan_interface.h
int __lsan_is_turned_off() { return 1; }

int main(int argc, char** argv) { return nccl_pulse::Main(argc, argv); }
