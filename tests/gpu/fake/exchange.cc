#include "tests/gpu/fake/exchange.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace nccl_pulse::fake {
namespace {

template <typename Condition>
void WaitUntil(Condition holds) {
  // Ever longer: who waits for a rank that does something else leaves it the processor.
  useconds_t rest_us = 20;
  for (int spins = 0; !holds(); ++spins) {
    if (spins < 1000) continue;
    usleep(rest_us);
    rest_us = std::min<useconds_t>(2 * rest_us, 1000);
  }
}

}  // namespace

Exchange::Exchange(const std::string& path, int rank, int nranks)
    : rank_(rank),
      nranks_(nranks),
      bytes_(kHeaderBytes + (kAreaBytes + kSlotBytes * kSlots) * static_cast<size_t>(nranks)) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || nranks > kMaxRanks || ftruncate(fd, static_cast<off_t>(bytes_)) != 0) {
    std::perror(path.c_str());
    std::abort();
  }
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) std::abort();
  base_ = static_cast<char*>(memory);
  Barrier();
  if (rank == 0) unlink(path.c_str());
}

Exchange::~Exchange() { munmap(base_, bytes_); }

void Exchange::Barrier() {
  const uint32_t round = header().round.load();
  if (header().arrived.fetch_add(1) + 1 == static_cast<uint32_t>(nranks_)) {
    header().arrived.store(0);
    header().round.store(round + 1);
    return;
  }
  WaitUntil([&] { return header().round.load() != round; });
}

void Exchange::Broadcast(int root, const void* send, void* recv, size_t bytes) {
  const int next = (rank_ + 1) % nranks_;
  const int previous = (rank_ + nranks_ - 1) % nranks_;
  auto& made = header().broadcasts;
  const uint64_t number = made[rank_].load();
  const void* data = send;
  if (rank_ != root) {
    // What it handed on stands in its slot by then: both are sequentially consistent.
    WaitUntil([&] { return made[previous].load() > number; });
    data = Slot(previous, number);
  }
  if (recv != data) std::memmove(recv, data, bytes);
  if (next != root) {
    WaitUntil([&] { return made[next].load() + kSlots > number; });
    std::memcpy(Slot(rank_, number), recv, bytes);
  }
  made[rank_].store(number + 1);
}

bool Exchange::Meet(const uint64_t (&words)[2]) {
  std::memcpy(header().words[rank_], words, sizeof(words));
  Barrier();
  bool equal = true;
  for (int i = 0; i < nranks_; ++i) {
    equal = equal && std::memcmp(header().words[i], words, sizeof(words)) == 0;
  }
  return equal;
}

void Exchange::Publish(const uint64_t (&words)[2], uint64_t (*all)[2]) {
  std::memcpy(header().words[rank_], words, sizeof(words));
  Barrier();
  std::memcpy(all, header().words, sizeof(words) * static_cast<size_t>(nranks_));
  Barrier();
}

}  // namespace nccl_pulse::fake
