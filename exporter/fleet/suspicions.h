// This tells which suspicions of an endpoint's page have not been there before: a hang of a
// communicator (not a wait that is usual), or a rank that lags in one. Whoever does something once
// for each needs that.
//
// Thread: one. Cost: that of looking through the page.
#ifndef EXPORTER_FLEET_SUSPICIONS_H_
#define EXPORTER_FLEET_SUSPICIONS_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse {

class Suspicions {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // A suspicion that pages have not had for so long has ended; when it comes again, it is new.
  // Only pages that were read count: while none is, such as during a long capture, nothing ends.
  // Stragglers come and go.
  static constexpr std::chrono::seconds kHangIsOver{30};
  static constexpr std::chrono::minutes kStragglerIsOver{30};
  // What is remembered at most, of each of the two: stragglers do not crowd out a hang. Beyond it
  // new ones are passed over.
  static constexpr std::size_t kMost = 4096;

  // `text`: the answer to /api/v1/communicators, which may be anything.
  void Look(std::string_view text, Time now);
  // What nothing has been done about yet, for a person: "hang of communicator 00ab ...".
  std::vector<std::string> New() const;
  bool HasNewHang() const;
  // Something has been done about all of it.
  void Done();
  // Some of the last page's were passed over.
  bool is_full() const { return is_full_; }

 private:
  struct Suspicion {
    bool is_hang = false;
    bool is_done = false;
    bool is_here = true;  // on the last page
    Time gone_since{};    // the first page without it; means nothing while it is here
  };
  std::size_t& Count(bool is_hang) { return is_hang ? hangs_ : stragglers_; }
  void See(const std::string& what, bool is_hang);
  void Forget(Time now);

  std::map<std::string, Suspicion> suspicions_;
  std::size_t hangs_ = 0, stragglers_ = 0;  // of these
  bool is_full_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_SUSPICIONS_H_
