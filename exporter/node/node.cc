#include "exporter/node/node.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/node/monotonic_clock.h"

namespace nccl_pulse {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kBusyPause{10};
constexpr milliseconds kNowherePause{1000};
constexpr milliseconds kPortReturnTime{1000};
constexpr milliseconds kYieldAnswerTime{1000};
// Connections in a row that end without an answer: whoever takes them is no server of ours.
constexpr int kMaxUnanswered = 5;

void Pause(milliseconds time) { poll(nullptr, 0, static_cast<int>(time.count())); }

// Until something came, or `until`.
void WaitFor(int fd, Node::Time until) {
  const auto left = duration_cast<milliseconds>(until - MonotonicNow());
  pollfd polled = {fd, POLLIN, 0};
  poll(&polled, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
}

std::string ErrorText(int error) {
  std::array<char, 128> buffer;
  return strerror_r(error, buffer.data(), buffer.size());
}

// Why who listens at the other end may be silent.
std::string WhyNoAnswer(int connection) {
  Credentials server;
  if (!PeerCredentials(connection, &server)) server.pid = 0;
  switch (StateOf(server.pid)) {
    case ProcessState::kStopped:
      return absl::StrCat("process ", server.pid, " is stopped");
    case ProcessState::kRuns:
      return absl::StrCat("process ", server.pid,
                          " is busy: so many connect that its processor time for that is spent, "
                          "or its job keeps it from running");
    case ProcessState::kUnknown:
      break;
  }
  return "it may be stopped, or busy";
}

}  // namespace

Node::Node(NodeOptions options, LogFunction log)
    : options_(std::move(options)),
      log_(std::move(log)),
      random_(static_cast<unsigned>(getpid()) * 2654435761U ^
              static_cast<unsigned>(MonotonicNow().time_since_epoch().count())),
      peers_(options_.peers, log_),
      service_file_(options_.service_directory) {}

bool Node::Open(std::string* error) {
  if (!ParseListenAddress(options_.listen_address, &wanted_, error)) return false;
  // Until a server says otherwise.
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
          WaitFor(server_.get(), give_up);
          HandleServer(MonotonicNow());
        }
        if (role_ == Role::kMember) return true;
        break;
    }
    // The thread goes on with it. A server that has the port for an agent wants it left alone.
    const Time now = MonotonicNow();
    if (role_ == Role::kElecting && (elect_at_ == Time::max() || elect_at_ < now)) elect_at_ = now;
    if (now >= give_up || elect_at_ > now + kJoinPatience) return true;
  }
}

// --- Becoming something ------------------------------------------------------------------------

Node::Attempt Node::Elect(Time now, std::string* failure) {
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

Node::Attempt Node::Try(const ListenAddress& address, Time now, std::string* failure) {
  const uid_t user = geteuid();
  if (can_join() && user != 0) {
    // Root's agent, if there is one.
    const Attempt attempt = Join(0, address, now);
    if (attempt == Attempt::kJoined || attempt == Attempt::kBusy) return attempt;
  }
  if (shared()) {
    const int error = ListenOn(HandoverName(user, address), &name_listener_);
    if (error == EADDRINUSE && !can_join()) return Attempt::kTaken;
    if (error == EADDRINUSE) {
      const Attempt attempt = Join(user, address, now);
      // Who had it a moment ago is closing, or does not listen yet.
      return attempt == Attempt::kNobody ? Attempt::kBusy : attempt;
    }
    // Refused for any other reason, nobody can hand over to this process; it serves itself.
  }
  Listener listener;
  const int error = OpenAt(address, &listener_, &listener);
  if (error == 0) {
    Serve(listener, now);
    return Attempt::kServing;
  }
  name_listener_.Close();
  if (error == EADDRINUSE) {
    const bool returns = now < port_returns_until_ && address.port == port_;
    return returns ? Attempt::kBusy : Attempt::kTaken;
  }
  *failure = absl::StrCat("cannot listen on ", SpellAddress(address), ": ", ErrorText(error));
  return Attempt::kFailed;
}

Node::Attempt Node::Join(uid_t owner, const ListenAddress& address, Time now) {
  const std::string name = HandoverName(owner, address);
  if (IsRefusedBy(name)) return Attempt::kTaken;
  const int error = ConnectTo(name, owner, &server_);
  if (error == ECONNREFUSED) return Attempt::kNobody;
  if (error == EAGAIN) return Attempt::kBusy;  // too many are waiting
  if (error != 0) return Attempt::kTaken;
  // Where it ends in EPIPE the server has closed, and has said why: HandleServer reads that.
  if (!Send(server_.get(), MakeMessage(MessageType::kHello), options_.memory) && errno != EPIPE &&
      errno != ECONNRESET) {
    server_.Close();
    return Attempt::kBusy;
  }
  role_ = Role::kJoining;
  server_name_ = name;
  server_user_ = owner;
  check_at_ = now + kNameCheckPeriod;
  return Attempt::kJoined;
}

void Node::Serve(const Listener& listener, Time now) {
  role_ = Role::kServing;
  address_ = listener.address;
  port_ = listener.port;
  socket_path_ = wanted_.path;
  refused_by_.clear();
  unanswered_ = 0;
  members_ = 0;
  accept_from_ = expected_members_ > 0 ? now + kGatherTime : now;
  peers_.Open(address_, port_, options_.memory);
  std::string error;
  if (!service_file_.Write(address_, port_, options_.https, &error)) Log(LogLevel::kWarning, error);
}

bool Node::IsRefusedBy(const std::string& name) const {
  return std::find(refused_by_.begin(), refused_by_.end(), name) != refused_by_.end();
}

milliseconds Node::RandomDelay() {
  std::uniform_int_distribution<int> delay(0, static_cast<int>(kMaxElectionDelay.count()));
  return milliseconds(delay(random_));
}

// On the server's thread.
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
        Log(LogLevel::kWarning, absl::StrCat("metrics can not be served for now: ", failure));
      }
      logged_nowhere_ = true;
      elect_at_ = now + kNowherePause + RandomDelay();
      return;
  }
}

// --- Being a member ----------------------------------------------------------------------------

void Node::LoseServer(Time now, milliseconds least_delay) {
  role_ = Role::kElecting;
  server_.Close();
  check_at_ = Time::max();
  elect_at_ = now + least_delay + RandomDelay();
  port_returns_until_ = elect_at_ + kPortReturnTime;
  expected_members_ = std::max(members_ - 1, 0);
}

void Node::HandleServer(Time now) {
  HandoverMessage message;
  SharedDescriptor memory;  // a server sends none
  std::string error;
  const Received received = Receive(server_.get(), &message, &memory, &error);
  memory.Close();
  switch (received) {
    case Received::kNothing:
      return;
    case Received::kClosed:
      if (role_ == Role::kJoining && ++unanswered_ >= kMaxUnanswered) {
        refused_by_.push_back(server_name_);
        unanswered_ = 0;
      }
      LoseServer(now, milliseconds(0));
      return;
    case Received::kBad:
      message = MakeMessage(MessageType::kRefused);
      message.SetText(error);
      break;
    case Received::kMessage:
      break;
  }
  switch (message.type) {
    case MessageType::kWelcome:
      role_ = Role::kMember;
      address_ = message.Text();
      port_ = static_cast<uint16_t>(message.port);
      members_ = static_cast<int>(std::min<uint32_t>(message.members, kMaxMembers));
      refused_by_.clear();
      unanswered_ = 0;
      logged_nowhere_ = false;
      // Init did not wait so long, and named another place.
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
  // kRefused, or what no server says. Root's process need not be an agent: having asked it is no
  // trouble.
  Log(server_user_ == geteuid() ? LogLevel::kWarning : LogLevel::kInfo,
      absl::StrCat("the node's server did not take this process' measurements (", message.Text(),
                   "): it serves them itself, on the next free port"));
  refused_by_.push_back(server_name_);
  members_ = 0;  // those stay where they are
  LoseServer(now, milliseconds(0));
  elect_at_ = now;
  port_returns_until_ = Time();  // that server stays where it is
}

// --- The agent ---------------------------------------------------------------------------------

bool Node::OpenAgent(std::string* error) {
  const uid_t user = geteuid();
  const std::string name = HandoverName(user, wanted_);
  const Time begin = MonotonicNow();
  while (true) {
    std::string refusal;
    std::string silent;
    milliseconds patience = kAgentPatience;
    int failure = shared() ? ListenOn(name, &name_listener_) : 0;
    if (failure == EADDRINUSE) {
      AskToYield(name, user, &refusal, &silent);
    } else if (failure == 0) {
      Listener listener;
      failure = OpenAt(wanted_, &listener_, &listener);
      if (failure == 0) {
        // Whoever had to serve on a port behind this one comes, too.
        std::string ignored;
        AskOthersToYield(/*same_port_only=*/false, &ignored);
        const bool nobody_told = expected_members_ == 0 && shared();
        if (nobody_told) expected_members_ = kMaxMembers;
        const Time now = MonotonicNow();
        Serve(listener, now);
        if (nobody_told) accept_from_ = now + kAgentGatherTime;
        return true;
      }
      name_listener_.Close();
      const bool asked =
          failure == EADDRINUSE && AskOthersToYield(/*same_port_only=*/true, &refusal);
      // Another program's, unless somebody is just closing it.
      if (!asked) patience = kPortReturnTime;
    }
    const bool in_vain = failure != EADDRINUSE || MonotonicNow() - begin > patience;
    if (!refusal.empty() || in_vain) {
      *error = absl::StrCat("cannot serve on ", SpellAddress(wanted_), ": ",
                            !refusal.empty()  ? refusal
                            : !silent.empty() ? silent
                                              : ErrorText(failure));
      return false;
    }
    Pause(kBusyPause);
  }
}

// True when the server leaves its port to us.
bool Node::AskToYield(const std::string& name, uid_t owner, std::string* refusal,
                      std::string* silent) {
  SharedDescriptor connection;
  if (ConnectTo(name, owner, &connection) != 0) return false;
  Send(connection.get(), MakeMessage(MessageType::kYield));
  WaitFor(connection.get(), MonotonicNow() + kYieldAnswerTime);
  HandoverMessage message;
  SharedDescriptor memory;
  std::string error;
  const Received received = Receive(connection.get(), &message, &memory, &error);
  memory.Close();
  if (silent != nullptr) {
    *silent = absl::StrCat("the process that serves there does not answer, ",
                           WhyNoAnswer(connection.get()));
  }
  connection.Close();
  if (received != Received::kMessage) return false;
  if (message.type == MessageType::kRefused) *refusal = message.Text();
  if (message.type != MessageType::kYielded) return false;
  // Its members and itself.
  expected_members_ += static_cast<int>(std::min<uint32_t>(message.members, kMaxMembers)) + 1;
  return true;
}

// Root's agent: servers of other users. Any agent: those that found the port taken. False when
// there is nobody to ask.
bool Node::AskOthersToYield(bool same_port_only, std::string* refusal) {
  if (!wanted_.path.empty()) return false;
  bool asked = false;
  const std::string own = HandoverName(geteuid(), wanted_);
  for (const NameInUse& other : NamesInUse()) {
    if (other.name == own || (geteuid() != 0 && other.user != geteuid())) continue;
    const int last_port = same_port_only ? wanted_.port : wanted_.port + kFurtherPorts;
    if (other.port < wanted_.port || other.port > last_port) continue;
    AskToYield(other.name, other.user, refusal);
    asked = true;
  }
  return asked;
}

void Node::Yield(Time now) {
  // Those that are still on their way to this server will come to the next one.
  const bool gathering = accept_from_ > now;
  expected_members_ = gathering ? std::max(peers_.members(), expected_members_) : peers_.members();
  service_file_.Remove();
  listener_.Close();
  name_listener_.Close();
  peers_.Yield(kYieldTime, expected_members_);
  role_ = Role::kElecting;
  elect_at_ = now + kYieldTime + RandomDelay();
  port_returns_until_ = elect_at_ + kPortReturnTime;
}

// --- The loop ----------------------------------------------------------------------------------

void Node::AppendPolled(std::vector<pollfd>* polled, bool accepting) {
  if (role_ == Role::kServing) {
    polls_name_ = accepting && name_listener_.get() >= 0 && peers_.accept_from() <= MonotonicNow();
    if (polls_name_) polled->push_back({name_listener_.get(), POLLIN, 0});
    peers_.AppendPolled(polled);
  } else if (role_ != Role::kElecting) {
    polled->push_back({server_.get(), POLLIN, 0});
  }
}

Node::Time Node::next() const {
  switch (role_) {
    case Role::kServing:
      return peers_.next();
    case Role::kElecting:
      return elect_at_;
    default:
      return check_at_;
  }
}

void Node::Handle(const pollfd* polled, Time now) {
  switch (role_) {
    case Role::kServing: {
      peers_.Handle(polled + (polls_name_ ? 1 : 0), now);
      if (polls_name_ && polled[0].revents != 0) peers_.Accept(name_listener_.get(), now);
      const bool asked = peers_.EndRound();
      if (accept_from_ > now && peers_.members() >= expected_members_) accept_from_ = now;
      if (!asked) return;
      if (options_.peers.agent) {
        peers_.RefuseYield(absl::StrCat("an agent serves already, process ", getpid()));
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
      if (polled[0].revents != 0) HandleServer(now);
      if (check_at_ > now || server_.get() < 0) return;
      check_at_ = now + kNameCheckPeriod;
      if (IsFree(server_name_)) {
        LoseServer(now, milliseconds(0));
      } else if (role_ == Role::kJoining && !warned_of_silence_) {
        warned_of_silence_ = true;
        Log(LogLevel::kWarning,
            absl::StrCat("the node's server at ", address_, " does not answer yet, ",
                         WhyNoAnswer(server_.get()),
                         ": these measurements are not served before it does, or ends"));
      }
      return;
  }
}

void Node::Log(LogLevel level, const std::string& message) {
  if (log_) log_(level, message);
}

void Node::SayGoodbye() {
  leaving_ = true;
  if (role_ == Role::kMember) Send(server_.get(), MakeMessage(MessageType::kGoodbye));
  if (role_ != Role::kServing) return;
  service_file_.Remove();
  if (!socket_path_.empty()) unlink(socket_path_.c_str());
  socket_path_.clear();
}

void Node::Close() {
  SayGoodbye();
  listener_.Close();
  name_listener_.Close();
  server_.Close();
  peers_.CloseAll();
}

void Node::CloseDescriptors() {
  listener_.Close();
  name_listener_.Close();
  server_.Close();
  peers_.CloseDescriptors();
}

}  // namespace nccl_pulse
