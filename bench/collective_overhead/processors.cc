#include "bench/collective_overhead/processors.h"

#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace nccl_pulse::overhead {
namespace {

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

}  // namespace

void Processors::Find(const std::string& bus_id) {
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

void Processors::Pin(uint32_t number, int rank, int nranks) const {
  // Three apart, because neighbors and halves of the list are often two threads of one core.
  const std::size_t n = near_.size();
  const std::size_t apart = n >= 3 * static_cast<std::size_t>(nranks) ? 3 : 1;
  const std::size_t at = (number + apart * static_cast<std::size_t>(rank)) % n;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(near_[at], &one);
  pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

void Processors::Unpin() const {
  pthread_setaffinity_np(pthread_self(), sizeof(allowed_), &allowed_);
}

}  // namespace nccl_pulse::overhead
