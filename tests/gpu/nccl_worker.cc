#include "tests/gpu/nccl_worker.h"

#include <cstring>
#include <iostream>

#include "tests/gpu/nccl_values.h"

namespace nccl_pulse {

Worker::Worker(int gpu, int nranks) : bytes_(kMaxBytes * static_cast<uint64_t>(nranks)) {
  CheckCuda(g_api.cudaSetDevice(gpu), "cudaSetDevice");
  CheckCuda(g_api.cudaStreamCreateWithFlags(&stream_, kStreamNonBlocking), "cudaStreamCreate");
  CheckCuda(g_api.cudaMalloc(&send_, bytes_), "cudaMalloc");
  CheckCuda(g_api.cudaMalloc(&recv_, bytes_), "cudaMalloc");
}

void Worker::SetSend(const std::vector<char>& bytes) {
  CheckCuda(g_api.cudaMemcpyAsync(send_, bytes.data(), bytes.size(), kCopyDefault, stream_),
            "cudaMemcpyAsync");
  Synchronize();
}

void Worker::ClearRecv(uint64_t bytes) {
  CheckCuda(g_api.cudaMemsetAsync(recv_, 0x55, bytes, stream_), "cudaMemsetAsync");
}

void Worker::CheckRecv(const std::vector<char>& expected, const std::string& what,
                       uint64_t offset) {
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

void Worker::GroupStart(Communicator& comm) {
  CheckNccl(g_api.ncclGroupStart(), "ncclGroupStart");
  comm.is_in_group = true;
  comm.calls_in_group = 0;
  comm.broadcasts_in_group = 0;
}

void Worker::GroupEnd(Communicator& comm) {
  CheckNccl(g_api.ncclGroupEnd(), "ncclGroupEnd");
  comm.is_in_group = false;
  WaitForCall(comm.handle, "ncclGroupEnd");
  comm.ledger.Launch(comm.calls_in_group, comm.broadcasts_in_group, false);
}

void Worker::Collective(Communicator& comm, Op op, Shape shape, int root, const void* send,
                        void* recv, bool captured) {
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

void Worker::Send(Communicator& comm, Shape shape, int peer, const void* send) {
  Made(comm, "Send", shape, false, peer == comm.rank(),
       g_api.ncclSend(send, shape.count(), shape.datatype, peer, comm.handle, stream_));
}

void Worker::Recv(Communicator& comm, Shape shape, int peer, void* recv) {
  Made(comm, "Recv", shape, false, peer == comm.rank(),
       g_api.ncclRecv(recv, shape.count(), shape.datatype, peer, comm.handle, stream_));
}

std::vector<char> Worker::Input(const Communicator& comm, Op op, Shape shape) {
  const uint64_t blocks = op == Op::kReduceScatter ? static_cast<uint64_t>(comm.nranks()) : 1;
  return Encoded(shape.datatype, shape.count() * blocks,
                 [&](uint64_t i) { return ValueOf(comm.rank(), i); });
}

std::vector<char> Worker::Output(const Communicator& comm, Op op, Shape shape, int root) {
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

void Worker::Sweep(Communicator& comm, const std::vector<Shape>& shapes, int repeats) {
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

void Worker::AddChecks(const Worker& other) {
  checked_ += other.checked_;
  wrong_ += other.wrong_;
}

void Worker::Made(Communicator& comm, const char* op, Shape shape, bool captured, bool to_self,
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

}  // namespace nccl_pulse
