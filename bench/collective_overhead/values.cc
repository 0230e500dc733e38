#include "bench/collective_overhead/values.h"

namespace nccl_pulse::overhead {
namespace {

std::vector<float> PeriodOf(uint64_t first, int rank) {
  std::vector<float> period(kValuePeriod);
  for (uint64_t i = 0; i < kValuePeriod; ++i) period[i] = ValueOf(first + i, rank);
  return period;
}

std::vector<float> SumPeriod(uint64_t first, int nranks) {
  std::vector<float> period(kValuePeriod);
  for (uint64_t i = 0; i < kValuePeriod; ++i) {
    for (int rank = 0; rank < nranks; ++rank) period[i] += ValueOf(first + i, rank);
  }
  return period;
}

}  // namespace

std::vector<Segment> Expected(Operation operation, uint64_t count, int rank, int nranks) {
  const uint64_t own_part = count * static_cast<uint64_t>(rank);
  std::vector<Segment> segments;
  switch (operation) {
    case Operation::kAllReduce:
      return {{count, SumPeriod(0, nranks)}};
    case Operation::kReduceScatter:
      return {{count, SumPeriod(own_part, nranks)}};
    case Operation::kBroadcast:
      return {{count, PeriodOf(0, 0)}};
    case Operation::kSendRecv:
      return {{count, PeriodOf(0, (rank + nranks - 1) % nranks)}};
    case Operation::kAllGather:
      for (int from = 0; from < nranks; ++from) segments.push_back({count, PeriodOf(0, from)});
      return segments;
    case Operation::kAllToAll:
      for (int from = 0; from < nranks; ++from) {
        segments.push_back({count, PeriodOf(own_part, from)});
      }
      return segments;
  }
  return segments;
}

uint64_t SendCount(Operation operation, uint64_t count, int nranks) {
  const bool per_peer = operation == Operation::kReduceScatter || operation == Operation::kAllToAll;
  return per_peer ? count * static_cast<uint64_t>(nranks) : count;
}

uint64_t ReceiveCount(Operation operation, uint64_t count, int nranks) {
  const bool per_peer = operation == Operation::kAllGather || operation == Operation::kAllToAll;
  return per_peer ? count * static_cast<uint64_t>(nranks) : count;
}

}  // namespace nccl_pulse::overhead
