#include "plugin/tracker/left_call.h"

#include <time.h>

namespace nccl_pulse {

bool HasLeftCall(const Communicator& communicator) {
  const CommunicatorParts* parts = communicator.parts.acquire();
  return parts != nullptr && parts->launches.uncounted().is_there();
}

void CountLeftCall(Instruments& instruments, const Communicator& communicator) {
  CommunicatorParts* parts = communicator.parts.acquire();
  if (parts == nullptr) return;
  LaneWriter lane = communicator.ClaimLane(instruments.segment, LaneRole::kLaunch);
  if (lane.ok()) CountUncounted(*parts, lane);
}

void WaitForLeftCall(Instruments& instruments, const Communicator& communicator) {
  for (int attempt = 0; attempt < RecordWriter::kLaneAttempts; ++attempt) {
    if (!HasLeftCall(communicator)) return;
    CountLeftCall(instruments, communicator);
    if (HasLeftCall(communicator)) nanosleep(&RecordWriter::kLanePause, nullptr);
  }
}

}  // namespace nccl_pulse
