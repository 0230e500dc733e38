#include "plugin/runtime/live_control.h"

#include <string>
#include <utility>

#include "exporter/base/time.h"
#include "metrics/header_writer.h"
#include "plugin/runtime/identity.h"

namespace nccl_pulse {

void LiveControl::AddSettings() {
  const Settings& settings = process_.settings;
  const auto add = [&](LiveSetting setting, double value, LiveValues::Apply apply) {
    values_.Add(setting, value, settings.IsFromEnvironment(setting), std::move(apply));
  };
  add(LiveSetting::kTimedLaunches, settings.timed_launches_per_second, [this](double value) {
    if (process_.settings.timing != TimingMode::kAuto) {
      return "launches are timed with NCCL_PULSE_TIMING=auto only, and this process has " +
             std::string(TimingModeName(process_.settings.timing));
    }
    process_.tracker->SetTimedLaunches(static_cast<int>(value));
    return std::string();
  });
  const bool has_window = settings.timing != TimingMode::kOff;
  add(LiveSetting::kNetworkWindow, has_window ? settings.network_window_percent : 0,
      [this](double value) {
        if (process_.masks.window().SetShare(value, process_.clock.NowNs())) return std::string();
        return std::string(
            "this needs a start of the process with NCCL_PULSE_NETWORK_WINDOW other than off and "
            "100, and NCCL_PULSE_TIMING other than off");
      });
  add(LiveSetting::kHangSeconds, settings.hang_seconds, [this](double value) {
    process_.StoreHangSeconds(static_cast<int>(value));
    return std::string();
  });
  add(LiveSetting::kLogLevel, static_cast<int>(settings.log_level), [this](double value) {
    process_.log.set_level(static_cast<LogVerbosity>(static_cast<int>(value)));
    return std::string();
  });
}

void LiveControl::Open() {
  try {
    AddSettings();
    ControlSocket::Options options;
    options.values = &values_;
    options.owner = OwnerWords(FindProcessIdentity().job_id);
    options.log = [this](LogLevel level, const std::string& message) {
      // Not through NCCL's logger: NCCL is not calling now.
      if (level == LogLevel::kWarning) {
        process_.log.Warn(nullptr, message);
      } else {
        process_.log.Info(nullptr, message);
      }
    };
    options.count = [this](CommandResult result) {
      HeaderWriter(*process_.segment).CountCommand(result);
    };
    socket_.Open(std::move(options));
  } catch (...) {
    // Most likely bad_alloc. No commands are accepted then.
    socket_.Close();
  }
}

bool LiveControl::Round() {
  bool is_asked = false;
  try {
    is_asked = socket_.Round(MonotonicNow());
  } catch (...) {
    // Most likely bad_alloc. The client gets no answer, and the next round continues.
  }
  HeaderWriter(*process_.segment).StoreChangedSettings(values_.changed());
  return is_asked;
}

}  // namespace nccl_pulse
