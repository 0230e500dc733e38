#include "exporter/base/version.h"

namespace nccl_pulse {

std::string BuildVersion() {
  const std::string commit = NCCL_PULSE_COMMIT;
  return commit.empty() ? kVersion : kVersion + ("+" + commit);
}

}  // namespace nccl_pulse
