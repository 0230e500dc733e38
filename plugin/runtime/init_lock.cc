#include "plugin/runtime/init_lock.h"

#include <new>

namespace nccl_pulse {
namespace {

alignas(std::mutex) char g_storage[sizeof(std::mutex)];
[[maybe_unused]] std::mutex* const kMade = new (g_storage) std::mutex;

}  // namespace

std::mutex& InitLock::Mutex() { return *std::launder(reinterpret_cast<std::mutex*>(g_storage)); }

void InitLock::Reset() { new (g_storage) std::mutex; }

}  // namespace nccl_pulse
