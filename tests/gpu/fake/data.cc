#include "tests/gpu/fake/data.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "tests/gpu/nccl_api.h"

namespace nccl_pulse::fake {
namespace {

using simulation::Call;

size_t ElementBytes(int datatype) {
  constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kBytes[datatype];
}

double HalfValue(uint16_t bits) {  // of a normal, positive number
  if (bits == 0) return 0;
  const double mantissa = 1024 + (bits & 0x3ff);
  const int exponent = (bits >> 10) - 25;
  return exponent >= 0 ? mantissa * (1 << exponent) : mantissa / (1 << -exponent);
}

uint16_t HalfBits(double value) {  // of an integer from 1 to 2048
  const auto integer = static_cast<int>(value);
  int exponent = 0;
  while (integer >> (exponent + 1) != 0) ++exponent;
  return static_cast<uint16_t>((exponent + 15) << 10 | ((integer << 10 >> exponent) & 0x3ff));
}

template <typename T>
void AddTo(char* sum, const char* addend, size_t count) {
  auto* to = reinterpret_cast<T*>(sum);
  const auto* from = reinterpret_cast<const T*>(addend);
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<T>(to[i] + from[i]);
}

void Add(int datatype, char* sum, const char* addend, size_t count) {
  switch (datatype) {
    case kInt8:
    case kUint8:
      return AddTo<uint8_t>(sum, addend, count);
    case kFloat32:
      return AddTo<float>(sum, addend, count);
    case kFloat64:
      return AddTo<double>(sum, addend, count);
    case kInt64:
    case kUint64:
      return AddTo<uint64_t>(sum, addend, count);
    case kFloat16:
    case kBfloat16:
      break;
    default:
      return AddTo<uint32_t>(sum, addend, count);
  }
  auto* to = reinterpret_cast<uint16_t*>(sum);
  const auto* from = reinterpret_cast<const uint16_t*>(addend);
  for (size_t i = 0; i < count; ++i) {
    if (datatype == kFloat16) {
      to[i] = HalfBits(HalfValue(to[i]) + HalfValue(from[i]));
      continue;
    }
    const uint32_t a = uint32_t{to[i]} << 16;
    const uint32_t b = uint32_t{from[i]} << 16;
    float x, y;
    std::memcpy(&x, &a, 4);
    std::memcpy(&y, &b, 4);
    x += y;
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    to[i] = static_cast<uint16_t>(bits >> 16);
  }
}

void RunCollective(const Ranks& comm, const Call& call) {
  const size_t element = ElementBytes(call.datatype);
  const size_t bytes = call.count * element;
  const std::string func = call.func;
  const bool scatter = func == "ReduceScatter";
  const auto n = static_cast<size_t>(comm.nranks);
  if (func == "Broadcast" && bytes <= kSlotBytes) {
    return comm.exchange->Broadcast(call.root_or_peer, call.send, call.recv, bytes);
  }
  if (bytes * (scatter ? n : 1) > kAreaBytes) std::abort();
  std::memcpy(comm.exchange->Area(comm.rank), call.send, bytes * (scatter ? n : 1));
  if (!comm.exchange->Meet({std::hash<std::string>()(func), bytes})) {
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  auto* recv = static_cast<char*>(call.recv);
  if (func == "AllGather") {
    for (int i = 0; i < comm.nranks; ++i) {
      std::memcpy(recv + bytes * static_cast<size_t>(i), comm.exchange->Area(i), bytes);
    }
  } else if (func == "Broadcast") {
    std::memcpy(recv, comm.exchange->Area(call.root_or_peer), bytes);
  } else if (func != "Reduce" || comm.rank == call.root_or_peer) {
    const size_t offset = scatter ? bytes * static_cast<size_t>(comm.rank) : 0;
    std::memcpy(recv, comm.exchange->Area(0) + offset, bytes);
    for (int i = 1; i < comm.nranks; ++i) {
      Add(call.datatype, recv, comm.exchange->Area(i) + offset, call.count);
    }
  }
  comm.exchange->Barrier();
}

// A rank's area: number of messages, then a head for each, then the data.
struct MessageHead {
  uint64_t peer, offset, bytes;
};
constexpr size_t kMessageData = 65536;

void RunPointToPoint(const Ranks& comm, const std::vector<Call>& calls) {
  char* area = comm.exchange->Area(comm.rank);
  auto& sent = *reinterpret_cast<uint64_t*>(area);
  auto* heads = reinterpret_cast<MessageHead*>(area + sizeof(uint64_t));
  sent = 0;
  size_t end = kMessageData;
  for (const Call& call : calls) {
    if (!call.is_p2p || call.send == nullptr) continue;
    const size_t bytes = call.count * ElementBytes(call.datatype);
    if (end + bytes > kAreaBytes) std::abort();
    std::memcpy(area + end, call.send, bytes);
    heads[sent++] = {static_cast<uint64_t>(call.root_or_peer), end, bytes};
    end += bytes;
  }
  comm.exchange->Barrier();
  std::vector<uint64_t> taken(static_cast<size_t>(comm.nranks), 0);
  for (const Call& call : calls) {
    if (!call.is_p2p || call.recv == nullptr) continue;
    const char* other = comm.exchange->Area(call.root_or_peer);
    const uint64_t count = *reinterpret_cast<const uint64_t*>(other);
    const auto* messages = reinterpret_cast<const MessageHead*>(other + sizeof(uint64_t));
    uint64_t& next = taken[static_cast<size_t>(call.root_or_peer)];
    while (next < count && messages[next].peer != static_cast<uint64_t>(comm.rank)) ++next;
    if (next == count) std::abort();  // nobody sends this
    std::memcpy(call.recv, other + messages[next].offset, messages[next].bytes);
    ++next;
  }
  comm.exchange->Barrier();
}

}  // namespace

void RunData(const Ranks& comm, const std::vector<Call>& calls) {
  bool has_p2p = false;
  for (const Call& call : calls) {
    has_p2p = has_p2p || call.is_p2p;
    if (!call.is_p2p) RunCollective(comm, call);
  }
  if (has_p2p) RunPointToPoint(comm, calls);
}

}  // namespace nccl_pulse::fake
