#include "tests/model/checked_atomics.h"

#include <cstdlib>
#include <cstring>

namespace nccl_pulse {
namespace {

const char* WithoutFolders(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

bool IsSame(const Site& one, const Site& other) {
  return one.line == other.line && one.cell == other.cell &&
         strcmp(one.operation, other.operation) == 0 && strcmp(one.file, other.file) == 0;
}

}  // namespace

int Sites::next_cell_ = 0;
int Sites::weakened_ = Sites::kNone;
int Sites::count_ = 0;
Site Sites::sites_[kMost];

std::string ToString(const Site& site) {
  std::string text = std::string(site.file) + ":" + std::to_string(site.line) + ": " +
                     site.function + ": " + site.operation;
  if (site.cell >= 0) text += " of cell " + std::to_string(site.cell);
  return text;
}

void Sites::Clear() {
  count_ = 0;
  weakened_ = kNone;
}

bool Sites::IsWeakened(const Site& met) {
  Site site = met;
  site.file = WithoutFolders(met.file);
  if (strcmp(site.file, "atomic_cell.h") != 0) site.cell = kNone;
  for (int i = 0; i < count_; ++i) {
    if (IsSame(sites_[i], site)) return i == weakened_;
  }
  if (count_ == kMost) abort();
  sites_[count_++] = site;
  return false;
}

rl::memory_order Checked(std::memory_order order, const Site& site) {
  if (order == std::memory_order_relaxed) return rl::mo_relaxed;
  if (Sites::IsWeakened(site)) return rl::mo_relaxed;
  switch (order) {
    case std::memory_order_acquire:
      return rl::mo_acquire;
    case std::memory_order_release:
      return rl::mo_release;
    case std::memory_order_acq_rel:
      return rl::mo_acq_rel;
    default:
      return rl::mo_seq_cst;
  }
}

}  // namespace nccl_pulse
