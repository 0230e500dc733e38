#include "tests/gpu/nccl_worker.h"

#include <cstring>
#include <iostream>

namespace nccl_pulse {
namespace {

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

}  // namespace

std::vector<char> Encoded(int datatype, uint64_t count,
                          const std::function<int(uint64_t)>& value_of) {
  const uint64_t element = DatatypeBytes(datatype);
  std::vector<char> bytes(count * element);
  for (uint64_t i = 0; i < count; ++i) Encode(datatype, value_of(i), &bytes[i * element]);
  return bytes;
}

Communicator& Communicators::Adopt(NcclComm handle, Communicator& comm) {
  comm.handle = handle;
  WaitForCall(handle, "init");
  CheckNccl(g_api.ncclCommUserRank(handle, &comm.ledger.rank), "ncclCommUserRank");
  CheckNccl(g_api.ncclCommCount(handle, &comm.ledger.nranks), "ncclCommCount");
  return comm;
}

// NCCL keeps the pointer to the name; a deque's elements stay where they are.
Communicator& Communicators::New(const std::string& name, bool blocking) {
  const NcclUniqueId id = ExchangeId(flags_, std::to_string(exchanged_++));
  Communicator& comm = all_.emplace_back();
  comm.ledger.name = name;
  comm.ledger.blocking = blocking;
  NcclComm handle = nullptr;
  if (name.empty()) {
    CheckNccl(g_api.ncclCommInitRank(&handle, flags_.nranks, id, flags_.rank), "ncclCommInitRank");
  } else {
    NcclConfig config;
    config.comm_name = comm.ledger.name.c_str();
    if (!blocking) config.blocking = 0;
    CheckNccl(g_api.ncclCommInitRankConfig(&handle, flags_.nranks, id, flags_.rank, &config),
              "ncclCommInitRankConfig");
  }
  return Adopt(handle, comm);
}

Communicator& Communicators::NewSplit(Communicator& parent, const std::string& name, bool share) {
  const int color = parent.nranks() >= 4 ? parent.rank() % 2 : 0;
  Communicator& comm = all_.emplace_back();
  comm.ledger.name = name + "-" + std::to_string(color);
  NcclConfig config;
  config.comm_name = comm.ledger.name.c_str();
  config.split_share = share ? 1 : 0;
  NcclComm handle = nullptr;
  CheckNccl(
      g_api.ncclCommSplit(parent.handle, color, parent.nranks() - parent.rank(), &handle, &config),
      "ncclCommSplit", parent.handle);
  return Adopt(handle, comm);
}

void Communicators::Destroy(Communicator& comm) {
  if (comm.handle == nullptr) return;
  CheckNccl(g_api.ncclCommFinalize(comm.handle), "ncclCommFinalize", comm.handle);
  WaitForCall(comm.handle, "ncclCommFinalize");
  CheckNccl(g_api.ncclCommDestroy(comm.handle), "ncclCommDestroy");
  comm.handle = nullptr;
  comm.ledger.destroyed = true;
}

Worker::Worker(int gpu, int nranks)
    : Buffers((CheckCuda(g_api.cudaSetDevice(gpu), "cudaSetDevice"),
               kMaxBytes * static_cast<uint64_t>(nranks))) {}

void Worker::SetSend(const std::vector<char>& bytes) {
  Copy(send(), bytes.data(), bytes.size());
  Synchronize();
}

void Worker::ClearRecv(uint64_t bytes) {
  CheckCuda(g_api.cudaMemsetAsync(recv(), 0x55, bytes, stream()), "cudaMemsetAsync");
}

void Worker::CheckRecv(const std::vector<char>& expected, const std::string& what,
                       uint64_t offset) {
  // Waited for here and not within the copy: that one holds a lock of the driver while it waits,
  // and with several communicators on a GPU two ranks could hold each other up for ever.
  Synchronize();
  if (expected.empty()) return;
  std::vector<char> found(expected.size());
  Copy(found.data(), recv() + offset, found.size());
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
                  g_api.ncclAllReduce(send, recv, n, type, kSum, comm.handle, stream()));
    case Op::kAllGather:
      return Made(comm, "AllGather", shape, captured, false,
                  g_api.ncclAllGather(send, recv, n, type, comm.handle, stream()));
    case Op::kReduceScatter:
      return Made(comm, "ReduceScatter", shape, captured, false,
                  g_api.ncclReduceScatter(send, recv, n, type, kSum, comm.handle, stream()));
    case Op::kBroadcast:
      return Made(comm, "Broadcast", shape, captured, false,
                  g_api.ncclBroadcast(send, recv, n, type, root, comm.handle, stream()));
    case Op::kReduce:
      return Made(comm, "Reduce", shape, captured, false,
                  g_api.ncclReduce(send, recv, n, type, kSum, root, comm.handle, stream()));
  }
}

void Worker::Send(Communicator& comm, Shape shape, int peer, const void* send) {
  Made(comm, "Send", shape, false, peer == comm.rank(),
       g_api.ncclSend(send, shape.count(), shape.datatype, peer, comm.handle, stream()));
}

void Worker::Recv(Communicator& comm, Shape shape, int peer, void* recv) {
  Made(comm, "Recv", shape, false, peer == comm.rank(),
       g_api.ncclRecv(recv, shape.count(), shape.datatype, peer, comm.handle, stream()));
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
        Collective(comm, op, shape, root, send(), recv());
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
