#include "bench/replay/intern.h"

#include <mutex>
#include <string>
#include <unordered_set>

namespace nccl_pulse {

const char* Intern(std::string_view text) {
  // Never destroyed: the plugin's threads may outlive main.
  static auto& mutex = *new std::mutex;
  static auto& strings = *new std::unordered_set<std::string>;  // nodes never move
  std::lock_guard<std::mutex> lock(mutex);
  return strings.emplace(text).first->c_str();
}

}  // namespace nccl_pulse
