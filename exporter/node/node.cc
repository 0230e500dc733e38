#include "exporter/node/node.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/error_text.h"
#include "exporter/base/time.h"
#include "exporter/node/takeover.h"

namespace nccl_pulse {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBusyPause{10};
constexpr milliseconds kNowherePause{1000};
constexpr milliseconds kPortReturnTime{1000};

}  // namespace

Node::Node(NodeOptions options, LogFunction log)
    : options_(std::move(options)),
      log_(std::move(log)),
      random_(static_cast<unsigned>(getpid()) * 2654435761U ^
              static_cast<unsigned>(MonotonicNow().time_since_epoch().count())),
      serving_(options_.peers, options_.service_directory, log_) {}

bool Node::Open(std::string* error) {
  if (!ParseListenAddress(options_.listen_address, &wanted_, error)) return false;
  // Until a server reports another address.
  address_ = SpellAddress(wanted_);
  port_ = wanted_.port;
  const bool open = options_.peers.agent ? OpenAgent(error) : OpenProcess(error);
  opened_ = true;
  logged_address_ = address();
  return open;
}

bool Node::OpenProcess(std::string* error) {
  const Time give_up = MonotonicNow() + kJoinPatience;
  while (true) {
    switch (Elect(MonotonicNow(), error)) {
      case Attempt::kServing:
        return true;
      case Attempt::kTaken:
      case Attempt::kFailed:
        return false;
      case Attempt::kNobody:
      case Attempt::kBusy:
        Pause(kBusyPause);
        break;
      case Attempt::kJoined:
        while (role_ == Role::kJoining && MonotonicNow() < give_up) {
          WaitFor(server_.fd(), give_up);
          HandleServer(MonotonicNow());
        }
        if (role_ == Role::kMember) return true;
        break;
    }
    // The server thread continues the election. A server that left the port to an agent must not be
    // asked again too early.
    const Time now = MonotonicNow();
    if (role_ == Role::kElecting && (elect_at_ == Time::max() || elect_at_ < now)) elect_at_ = now;
    if (now >= give_up || elect_at_ > now + kJoinPatience) return true;
  }
}

// --- Election ----------------------------------------------------------------------------------

Attempt Node::Elect(Time now, std::string* failure) {
  elect_at_ = Time::max();
  const int last_port = wanted_.port != 0 && wanted_.path.empty()
                            ? std::min(wanted_.port + kFurtherPorts, 65535)
                            : wanted_.port;
  for (int port = wanted_.port; port <= last_port; ++port) {
    const Attempt attempt =
        Try({wanted_.host, static_cast<uint16_t>(port), wanted_.path}, now, failure);
    if (attempt != Attempt::kTaken) return attempt;
  }
  *failure =
      absl::StrCat("cannot listen on ", SpellAddress(wanted_),
                   last_port > wanted_.port ? absl::StrCat(" or any port up to ", last_port) : "",
                   ": ", ErrorText(EADDRINUSE));
  return Attempt::kTaken;
}

Attempt Node::Try(const ListenAddress& address, Time now, std::string* failure) {
  const uid_t user = geteuid();
  if (can_join() && user != 0) {
    // Root's agent, if there is one.
    const Attempt attempt = Join(0, address, now);
    if (attempt == Attempt::kJoined || attempt == Attempt::kBusy) return attempt;
  }
  if (shared()) {
    const int error = serving_.TakeName(HandoverName(user, address));
    if (error == EADDRINUSE && !can_join()) return Attempt::kTaken;
    if (error == EADDRINUSE) {
      const Attempt attempt = Join(user, address, now);
      // The name's holder is closing, or does not listen yet.
      return attempt == Attempt::kNobody ? Attempt::kBusy : attempt;
    }
    // On any other error nobody can hand over to this process; it serves itself.
  }
  Listener listener;
  const int error = serving_.TakePort(address, &listener);
  if (error == 0) {
    Serve(listener, now);
    return Attempt::kServing;
  }
  serving_.LeaveName();
  if (error == EADDRINUSE) {
    const bool returns = now < port_returns_until_ && address.port == port_;
    return returns ? Attempt::kBusy : Attempt::kTaken;
  }
  *failure = absl::StrCat("cannot listen on ", SpellAddress(address), ": ", ErrorText(error));
  return Attempt::kFailed;
}

Attempt Node::Join(uid_t owner, const ListenAddress& address, Time now) {
  const Attempt attempt = server_.Join(HandoverName(owner, address), owner, *options_.memory, now);
  if (attempt == Attempt::kJoined) role_ = Role::kJoining;
  return attempt;
}

void Node::Serve(const Listener& listener, Time now) {
  role_ = Role::kServing;
  address_ = listener.address;
  port_ = listener.port;
  server_.AvoidNobody();
  members_ = 0;
  check_at_ = now + kCheckPeriod;
  serving_.Begin(address_, port_, options_.https, wanted_.path, options_.memory, expected_members_,
                 now);
}

milliseconds Node::RandomDelay() {
  std::uniform_int_distribution<int> delay(0, static_cast<int>(kMaxElectionDelay.count()));
  return milliseconds(delay(random_));
}

// Runs on the server thread.
void Node::ElectAndSettle(Time now) {
  if (leaving_) {
    elect_at_ = Time::max();
    return;
  }
  std::string failure;
  switch (Elect(now, &failure)) {
    case Attempt::kServing:
      logged_nowhere_ = false;
      Log(address_ == logged_address_ ? LogLevel::kInfo : LogLevel::kWarning,
          absl::StrCat("this process now serves the node's metrics, at ", address_));
      logged_address_ = address_;
      return;
    case Attempt::kJoined:
      return;
    case Attempt::kNobody:
    case Attempt::kBusy:
      elect_at_ = now + kBusyPause + RandomDelay() / 4;
      return;
    case Attempt::kTaken:
    case Attempt::kFailed:
      if (!logged_nowhere_) {
        Log(LogLevel::kWarning, absl::StrCat("metrics are not served yet, retrying: ", failure));
      }
      logged_nowhere_ = true;
      elect_at_ = now + kNowherePause + RandomDelay();
      return;
  }
}

// --- Member ------------------------------------------------------------------------------------

void Node::LoseServer(Time now, milliseconds least_delay) {
  role_ = Role::kElecting;
  server_.Close();
  elect_at_ = now + least_delay + RandomDelay();
  port_returns_until_ = elect_at_ + kPortReturnTime;
  expected_members_ = std::max(members_ - 1, 0);
}

void Node::HandleServer(Time now) {
  HandoverMessage message;
  switch (server_.Receive(&message)) {
    case Received::kNothing:
      return;
    case Received::kClosed:
      if (role_ == Role::kJoining) server_.CountUnanswered();
      LoseServer(now, milliseconds(0));
      return;
    case Received::kBad:
    case Received::kMessage:
      break;
  }
  switch (message.type) {
    case MessageType::kWelcome:
      role_ = Role::kMember;
      address_ = message.Text();
      port_ = static_cast<uint16_t>(message.port);
      members_ = static_cast<int>(std::min<uint32_t>(message.members, kMaxMembers));
      server_.AvoidNobody();
      logged_nowhere_ = false;
      // Init did not wait for this address, and has logged another one.
      if (opened_ && address_ != logged_address_) {
        Log(LogLevel::kWarning, absl::StrCat("the node's metrics are served at ", address_));
        logged_address_ = address_;
      }
      return;
    case MessageType::kMembers:
      members_ = static_cast<int>(std::min<uint32_t>(message.members, kMaxMembers));
      return;
    case MessageType::kReelect:
      LoseServer(now, std::min(milliseconds(message.delay_ms), kGatherTime));
      return;
    default:
      break;
  }
  // kRefused, or an invalid message. Root's process need not be an agent, so its refusal is no
  // warning.
  Log(server_.user() == geteuid() ? LogLevel::kWarning : LogLevel::kInfo,
      absl::StrCat("the node's server refused this process (", message.Text(),
                   "). Its metrics are served at the next free port"));
  server_.Avoid();
  members_ = 0;  // the members stay with their server
  LoseServer(now, milliseconds(0));
  elect_at_ = now;
  port_returns_until_ = Time();  // the other server keeps its port
}

void Node::CheckServing(Time now) {
  check_at_ = now + kCheckPeriod;
  serving_.CleanUp(now);
  if (serving_.IsLost()) {
    Log(LogLevel::kWarning, absl::StrCat("the program has closed the endpoint at ", address_,
                                         ". Another process of the node takes over"));
    Yield(now);
  } else if (server_.HasDeadLeft()) {
    Yield(now);
  }
}

void Node::CheckServer(Time now) {
  if (server_.IsServerGone()) {
    LoseServer(now, milliseconds(0));
    return;
  }
  if (const std::string dead = server_.WhyDead(); !dead.empty()) {
    Log(LogLevel::kWarning, absl::StrCat("the node's server at ", address_, ", ", dead,
                                         ", but its socket is still open. The next free port is "
                                         "used"));
    server_.AvoidDead();
    LoseServer(now, milliseconds(0));
    port_returns_until_ = Time();  // not known
    return;
  }
  const std::string silent = role_ == Role::kJoining ? server_.WhySilent(now) : "";
  if (silent.empty()) return;
  Log(LogLevel::kWarning,
      absl::StrCat("the node's server at ", address_, " does not answer yet, ", silent,
                   ". Until then this process' metrics are not served"));
}

// --- The agent ---------------------------------------------------------------------------------

bool Node::OpenAgent(std::string* error) {
  const uid_t user = geteuid();
  const std::string name = HandoverName(user, wanted_);
  const Time begin = MonotonicNow();
  Takeover takeover(&wanted_);
  while (true) {
    std::string refusal;
    std::string silent;
    milliseconds patience = kAgentPatience;
    int failure = shared() ? serving_.TakeName(name) : 0;
    if (failure == EADDRINUSE) {
      takeover.Ask(name, user, &refusal, &silent);
    } else if (failure == 0) {
      Listener listener;
      failure = serving_.TakePort(wanted_, &listener);
      if (failure == 0) {
        // Also asks processes that had to serve on a later port.
        std::string ignored;
        takeover.AskOthers(/*same_port_only=*/false, &ignored);
        expected_members_ = takeover.expected_members();
        const bool nobody_told = expected_members_ == 0 && shared();
        if (nobody_told) expected_members_ = kMaxMembers;
        const Time now = MonotonicNow();
        Serve(listener, now);
        if (nobody_told) serving_.GatherUntil(now + kAgentGatherTime);
        return true;
      }
      serving_.LeaveName();
      const bool asked =
          failure == EADDRINUSE && takeover.AskOthers(/*same_port_only=*/true, &refusal);
      // The port belongs to another program, or is just being closed.
      if (!asked) patience = kPortReturnTime;
    }
    const bool in_vain = failure != EADDRINUSE || MonotonicNow() - begin > patience;
    if (!refusal.empty() || in_vain) {
      *error = absl::StrCat("cannot serve on ", SpellAddress(wanted_), ": ",
                            !refusal.empty()  ? refusal
                            : !silent.empty() ? silent
                                              : ErrorText(failure));
      if (refusal.empty() && silent.empty() && failure == EADDRINUSE) {
        absl::StrAppend(error, "; `ss -lnp` names the program");
      }
      return false;
    }
    Pause(kBusyPause);
  }
}

void Node::Yield(Time now) {
  expected_members_ = serving_.Yield(now);
  role_ = Role::kElecting;
  elect_at_ = now + kYieldTime + RandomDelay();
  port_returns_until_ = elect_at_ + kPortReturnTime;
}

// --- The loop ----------------------------------------------------------------------------------

void Node::AppendPolled(std::vector<pollfd>* polled, bool accepting) {
  if (role_ == Role::kServing) {
    serving_.AppendPolled(polled, accepting);
  } else if (role_ != Role::kElecting) {
    polled->push_back({server_.fd(), POLLIN, 0});
  }
}

Node::Time Node::next() const {
  switch (role_) {
    case Role::kServing:
      return std::min(serving_.next(), check_at_);
    case Role::kElecting:
      return elect_at_;
    default:
      return server_.check_at();
  }
}

void Node::Handle(const pollfd* polled, Time now) {
  switch (role_) {
    case Role::kServing: {
      const bool asked = serving_.Handle(polled, now);
      if (check_at_ <= now) CheckServing(now);
      if (!asked || role_ != Role::kServing) return;
      if (options_.peers.agent) {
        serving_.RefuseYield(absl::StrCat("an agent serves already, process ", getpid()));
      } else if (serving_.asked_port() < wanted_.port) {
        // The agent wants the ports after its own free. Processes of this job would not find it at
        // its port.
        serving_.RefuseYield(absl::StrCat("its job listens from port ", wanted_.port, " on"));
      } else {
        Yield(now);
        Log(LogLevel::kInfo, "the endpoint is handed over to an agent that asked for it");
      }
      return;
    }
    case Role::kElecting:
      if (elect_at_ <= now) ElectAndSettle(now);
      return;
    case Role::kJoining:
    case Role::kMember:
      if (polled[0].revents != 0 || polled[0].fd < 0) HandleServer(now);
      if (server_.MustCheck(now)) CheckServer(now);
      return;
  }
}

void Node::Log(LogLevel level, const std::string& message) {
  if (log_) log_(level, message);
}

void Node::SayGoodbye() {
  leaving_ = true;
  if (role_ == Role::kMember) server_.SayGoodbye();
  if (role_ == Role::kServing) serving_.SayGoodbye();
}

void Node::Close() {
  SayGoodbye();
  serving_.Close();
  server_.Close();
}

}  // namespace nccl_pulse
