#include "metrics/kinds.h"

namespace nccl_pulse {

const char* UntimedReasonName(UntimedReason reason) {
  switch (reason) {
    case UntimedReason::kNotTimed:
      return "not_timed";
    case UntimedReason::kCaptured:
      return "captured";
    case UntimedReason::kOverlap:
      return "overlap";
    case UntimedReason::kBackwards:
      return "backwards";
    case UntimedReason::kUntrusted:
      return "untrusted";
    case UntimedReason::kLost:
      return "lost";
    case UntimedReason::kInvisible:
      return "invisible";
    case UntimedReason::kNotSampled:
      return "not_sampled";
    case UntimedReason::kGrouped:
      return "grouped";
    case UntimedReason::kUnreported:
      return "unreported";
  }
  return "unknown";
}

const char* CaptureFateName(CaptureFate fate) {
  switch (fate) {
    case CaptureFate::kSeen:
      return "seen";
    case CaptureFate::kFollowed:
      return "followed";
    case CaptureFate::kNoRoom:
      return "no_room";
    case CaptureFate::kIncomplete:
      return "incomplete";
    case CaptureFate::kRefused:
      return "refused";
  }
  return "unknown";
}

const char* WorkStateName(WorkState state) {
  switch (state) {
    case WorkState::kOff:
      return "off";
    case WorkState::kUnknown:
      return "unknown";
    case WorkState::kLocated:
      return "located";
    case WorkState::kCalibrating:
      return "calibrating";
    case WorkState::kProven:
      return "proven";
    case WorkState::kRefuted:
      return "refuted";
    case WorkState::kGone:
      return "gone";
  }
  return "unknown";
}

const char* WorkRefutalName(WorkRefutal refutal) {
  switch (refutal) {
    case WorkRefutal::kNone:
      return "none";
    case WorkRefutal::kNotFound:
      return "not_found";
    case WorkRefutal::kNotMapped:
      return "not_mapped";
    case WorkRefutal::kMoved:
      return "moved";
    case WorkRefutal::kDiffers:
      return "differs";
    case WorkRefutal::kBehind:
      return "behind";
    case WorkRefutal::kAhead:
      return "ahead";
    case WorkRefutal::kSteppedBack:
      return "stepped_back";
    case WorkRefutal::kCopyFailed:
      return "copy_failed";
    case WorkRefutal::kPointToPoint:
      return "point_to_point";
    case WorkRefutal::kUncounted:
      return "uncounted";
    case WorkRefutal::kNoEvents:
      return "no_events";
  }
  return "none";
}

const char* GpuUseName(GpuUse use) {
  switch (use) {
    case GpuUse::kUnknown:
      return "unknown";
    case GpuUse::kIdle:
      return "idle";
    case GpuUse::kBusy:
      return "busy";
    case GpuUse::kMixed:
      return "mixed";
    case GpuUse::kShared:
      return "shared";
  }
  return "unknown";
}

const char* LiveSettingName(LiveSetting setting) {
  switch (setting) {
    case LiveSetting::kTimedLaunches:
      return "TIMED_LAUNCHES_PER_SECOND";
    case LiveSetting::kNetworkWindow:
      return "NETWORK_WINDOW";
    case LiveSetting::kHangSeconds:
      return "HANG_SECONDS";
    case LiveSetting::kLogLevel:
      return "LOG_LEVEL";
  }
  return "unknown";
}

const char* CommandResultName(CommandResult result) {
  switch (result) {
    case CommandResult::kDone:
      return "done";
    case CommandResult::kRefused:
      return "refused";
    case CommandResult::kForeignUser:
      return "foreign_user";
    case CommandResult::kAbandoned:
      return "abandoned";
  }
  return "unknown";
}

const char* IgnoredReasonName(IgnoredReason reason) {
  switch (reason) {
    case IgnoredReason::kNullHandle:
      return "null_handle";
    case IgnoredReason::kStaleHandle:
      return "stale_handle";
    case IgnoredReason::kForeignHandle:
      return "foreign_handle";
    case IgnoredReason::kRepeatedStop:
      return "repeated_stop";
    case IgnoredReason::kStopWithoutStart:
      return "stop_without_start";
    case IgnoredReason::kStaleContext:
      return "stale_context";
    case IgnoredReason::kForeignContext:
      return "foreign_context";
    case IgnoredReason::kForeignProcess:
      return "foreign_process";
    case IgnoredReason::kUnknownType:
      return "unknown_type";
    case IgnoredReason::kUnrequestedType:
      return "unrequested_type";
    case IgnoredReason::kUnknownState:
      return "unknown_state";
    case IgnoredReason::kMissingArgument:
      return "missing_argument";
    case IgnoredReason::kNoRoom:
      return "no_room";
    case IgnoredReason::kAfterClose:
      return "after_close";
    case IgnoredReason::kUnfollowedStep:
      return "unfollowed_step";
  }
  return "unknown";
}

const char* CallbackKindName(CallbackKind kind) {
  switch (kind) {
    case CallbackKind::kApi:
      return "api";
    case CallbackKind::kLaunch:
      return "launch";
    case CallbackKind::kOperation:
      return "operation";
    case CallbackKind::kProxy:
      return "proxy";
    case CallbackKind::kKernel:
      return "kernel";
    case CallbackKind::kStep:
      return "step";
  }
  return "unknown";
}

const char* NetworkDirectionName(NetworkDirection direction) {
  return direction == NetworkDirection::kSend ? "send" : "recv";
}

NetworkDirection NetworkWaitDirection(NetworkWait wait) {
  return wait <= NetworkWait::kSendWire ? NetworkDirection::kSend : NetworkDirection::kReceive;
}

const char* NetworkWaitReason(NetworkWait wait) {
  switch (wait) {
    case NetworkWait::kSendGpu:
    case NetworkWait::kReceiveGpu:
      return "gpu";
    case NetworkWait::kSendPeer:
      return "peer";
    case NetworkWait::kSendWire:
    case NetworkWait::kReceiveWire:
      return "wire";
    case NetworkWait::kReceiveFlush:
      return "flush";
  }
  return "unknown";
}

}  // namespace nccl_pulse
