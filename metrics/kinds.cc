#include "metrics/kinds.h"

#include <cstddef>

namespace nccl_pulse {
namespace {

// Returns the label value of a kind; "unknown" for an invalid number (from another process).
template <typename Kind, std::size_t kSize>
const char* NameOf(const char* const (&names)[kSize], Kind kind) {
  const auto number = static_cast<std::size_t>(kind);
  return number < kSize && names[number] != nullptr ? names[number] : "unknown";
}

// True if each kind has a name. Arrays have the size from kinds.h, so a missing name is a null.
template <std::size_t kSize>
constexpr bool IsWhole(const char* const (&names)[kSize]) {
  return names[kSize - 1] != nullptr;
}

constexpr const char* kUntimed[kUntimedReasons] = {
    nullptr, "not_timed", "captured",    "overlap", "backwards", "untrusted",
    "lost",  "invisible", "not_sampled", "grouped", "unreported"};
constexpr const char* kFates[kCaptureFates] = {"seen", "followed", "no_room", "incomplete",
                                               "refused"};
constexpr const char* kStates[kWorkStates] = {"off",    "unknown", "located", "calibrating",
                                              "proven", "refuted", "gone",    "stuck"};
constexpr const char* kRefutals[kWorkRefutals] = {
    "none",  "not_found",    "not_mapped",  "moved",          "differs",   "behind",
    "ahead", "stepped_back", "copy_failed", "point_to_point", "uncounted", "no_events"};
constexpr const char* kUses[kGpuUses] = {"unknown", "idle", "busy", "mixed", "shared"};
constexpr const char* kSettings[kLiveSettings] = {"TIMED_LAUNCHES_PER_SECOND", "NETWORK_WINDOW",
                                                  "HANG_SECONDS", "LOG_LEVEL"};
constexpr const char* kResults[kCommandResults] = {"done", "refused", "foreign_user", "abandoned"};
constexpr const char* kIgnored[kIgnoredReasons] = {
    "null_handle",   "stale_handle",     "foreign_handle",  "repeated_stop", "stop_without_start",
    "stale_context", "foreign_context",  "foreign_process", "unknown_type",  "unrequested_type",
    "unknown_state", "missing_argument", "no_room",         "after_close",   "unfollowed_step"};
constexpr const char* kCallbacks[kCallbackKinds] = {"api",   "launch", "operation",
                                                    "proxy", "kernel", "step"};
constexpr const char* kWaits[kNetworkWaits] = {"gpu", "peer", "wire", "wire", "flush", "gpu"};
static_assert(IsWhole(kUntimed) && IsWhole(kFates) && IsWhole(kStates) && IsWhole(kRefutals) &&
              IsWhole(kUses) && IsWhole(kSettings) && IsWhole(kResults) && IsWhole(kIgnored) &&
              IsWhole(kCallbacks) && IsWhole(kWaits));

}  // namespace

const char* UntimedReasonName(UntimedReason reason) { return NameOf(kUntimed, reason); }
const char* CaptureFateName(CaptureFate fate) { return NameOf(kFates, fate); }
const char* WorkStateName(WorkState state) { return NameOf(kStates, state); }
const char* WorkRefutalName(WorkRefutal refutal) { return NameOf(kRefutals, refutal); }
const char* GpuUseName(GpuUse use) { return NameOf(kUses, use); }
const char* LiveSettingName(LiveSetting setting) { return NameOf(kSettings, setting); }
const char* CommandResultName(CommandResult result) { return NameOf(kResults, result); }
const char* IgnoredReasonName(IgnoredReason reason) { return NameOf(kIgnored, reason); }
const char* CallbackKindName(CallbackKind kind) { return NameOf(kCallbacks, kind); }
const char* NetworkWaitReason(NetworkWait wait) { return NameOf(kWaits, wait); }

const char* NetworkDirectionName(NetworkDirection direction) {
  return direction == NetworkDirection::kSend ? "send" : "recv";
}

NetworkDirection NetworkWaitDirection(NetworkWait wait) {
  return wait <= NetworkWait::kSendWire ? NetworkDirection::kSend : NetworkDirection::kReceive;
}

}  // namespace nccl_pulse
