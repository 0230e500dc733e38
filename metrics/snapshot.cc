#include "metrics/snapshot.h"

namespace nccl_pulse {

const char* ProcessEndName(ProcessEnd end) {
  switch (end) {
    case ProcessEnd::kLive:
      return "live";
    case ProcessEnd::kExit:
      return "exit";
    case ProcessEnd::kLost:
      return "lost";
  }
  return "unknown";
}

}  // namespace nccl_pulse
