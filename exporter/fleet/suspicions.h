// Which suspicions of an endpoint's page have not been there before: a hang of a communicator (not a
// wait that is usual), or a rank that lags in one. For whoever does something once for each.
//
// Thread: one. Cost: that of looking through the page.
#ifndef EXPORTER_FLEET_SUSPICIONS_H_
#define EXPORTER_FLEET_SUSPICIONS_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

class Suspicions {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // A suspicion that was not on a page for so long has ended; when it comes again, it is new.
  // Stragglers come and go.
  static constexpr std::chrono::seconds kHangIsOver{30};
  static constexpr std::chrono::minutes kStragglerIsOver{30};
  // What is remembered at most.
  static constexpr std::size_t kMost = 4096;

  // `page`: the answer to /api/v1/communicators, which may be anything.
  void Look(const nlohmann::json& page, Time now);
  // What nothing has been done about yet, for a person: "hang of communicator 00ab ...".
  std::vector<std::string> New() const;
  // Something has been done about all of it.
  void Done();

 private:
  struct Suspicion {
    Time seen{};
    bool is_done = false;
    bool is_hang = false;
  };
  void See(const std::string& what, bool is_hang, Time now);

  std::map<std::string, Suspicion> suspicions_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_SUSPICIONS_H_
