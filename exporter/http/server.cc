#include "exporter/http/server.h"

#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/exposition/communicators_json.h"
#include "exporter/exposition/negotiation.h"
#include "exporter/exposition/protobuf_format.h"
#include "exporter/exposition/snapshot_message.h"
#include "exporter/exposition/text_format.h"
#include "exporter/http/connection.h"
#include "exporter/http/cpu_budget.h"
#include "exporter/http/http.h"
#include "exporter/http/page_cache.h"
#include "exporter/node/monotonic_clock.h"
#include "exporter/node/node.h"
#include "exporter/page/status_page.h"

namespace nccl_pulse {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Time = Connection::Time;
using Body = std::shared_ptr<const std::string>;

constexpr std::string_view kTextType = "text/plain; charset=utf-8";
constexpr std::string_view kJsonType = "application/json";
constexpr std::string_view kHtmlType = "text/html; charset=utf-8";

// The answer depends on these headers of the request.
constexpr std::string_view kVary = "Vary: Accept, Accept-Encoding\r\n";
constexpr std::string_view kVaryGzip =
    "Vary: Accept, Accept-Encoding\r\nContent-Encoding: gzip\r\n";

// Large enough for the readers of snapshots, and for libraries that reserve thread-local memory on
// every thread's stack.
constexpr std::size_t kStackBytes = 1 << 20;
// New clients per round of the loop: those that are already there have been served in between.
constexpr int kAcceptsPerRound = 8;
// How long accepting pauses when the process has no descriptor left, or after an unexpected
// failure.
constexpr milliseconds kPause{100};
constexpr milliseconds kStopTimeout{2000};
constexpr milliseconds kGoodbyeTimeout{100};

void Pause() { poll(nullptr, 0, static_cast<int>(kPause.count())); }

// For poll(): milliseconds, -1 for ever.
int TimeoutUntil(Time end, Time now) {
  if (end == Time::max()) return -1;
  // One more, since the division rounds down: waking too early would be a round for nothing.
  const auto wait = duration_cast<milliseconds>(end - now) + milliseconds(1);
  return static_cast<int>(std::max(wait, milliseconds(0)).count());
}

// Cannot fail: an eventfd's counter is far from full.
void Signal(const SharedDescriptor& event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event.get(), &one, sizeof(one));
}

bool WaitFor(const SharedDescriptor& event, milliseconds patience) {
  pollfd polled = {event.get(), POLLIN, 0};
  const Time give_up = MonotonicNow() + patience;
  int result = 0;
  do {  // again when a signal handler of the job ran
    const auto left = duration_cast<milliseconds>(give_up - MonotonicNow());
    result = poll(&polled, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
  } while (result < 0 && errno == EINTR);
  return result > 0;
}

int64_t RealtimeNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

std::chrono::nanoseconds CpuTime() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

// Kinds of pages: one of each format, in PageFormat's order, the JSON, and what `pulse diagnose`
// asks for.
constexpr std::size_t kCommunicatorsPage = kPageFormats;
constexpr std::size_t kSnapshotsPage = kPageFormats + 1;
// Of the processor time for pages. People look at the JSON again and again, every 2 s with the
// status page open; scrapers do every 15 s; whoever diagnoses a job does twice.
constexpr int kFormatWeight = 5, kCommunicatorsWeight = 10, kSnapshotsWeight = 1;

std::string ErrorText(int error) {
  std::array<char, 128> buffer;
  return strerror_r(error, buffer.data(), buffer.size());
}

}  // namespace

// Everything the thread uses. Owned by the Server until the thread is known to have ended.
class Server::Thread {
 public:
  explicit Thread(ServerOptions options)
      : options_(std::move(options)),
        status_page_(std::make_shared<const std::string>(StatusPage())),
        healthy_(std::make_shared<const std::string>("ok\n")),
        node_({options_.listen_address, options_.memory, options_.peers, options_.service_directory,
               options_.guard != nullptr && options_.guard->is_https()},
              options_.log),
        pages_(PageOptions()),
        diagnosis_(options_.hang_after),
        clients_budget_(options_.cpu_share * kClientsShare, kCpuBurst, MonotonicNow()),
        handover_budget_(options_.cpu_share * kHandoverShare, kHandoverBurst, MonotonicNow()) {}

  ~Thread() { CloseDescriptors(); }

  bool Open(std::string* error) { return node_.Open(error); }
  const Node& node() const { return node_; }
  bool Start(std::string* error);
  void SayGoodbye();
  // False when the thread did not end in time; it then owns this object.
  bool Stop();
  // Async-signal-safe.
  void CloseDescriptors() {
    node_.CloseDescriptors();
    wake_.Close();
    ended_.Close();
    said_goodbye_.Close();
    for (Connection& connection : connections_) connection.CloseDescriptor();
  }

 private:
  static void* Main(void* self);
  void Loop();
  void Round();
  void StartOver(std::string_view what) noexcept;
  void Serve(Connection* connection, short events, Time now);
  void AnswerRequests(Connection* connection, Time now);
  void AnswerParked(Time now);
  bool Admit(Connection* connection, const HttpRequest& request, Time now);
  void Answer(Connection* connection, const HttpRequest& request, Time now);
  void Respond(Connection* connection, const HttpRequest& request, int status,
               std::string_view type, Body body, Time now, std::string_view more = "");
  void RespondPage(Connection* connection, const HttpRequest& request, std::size_t kind, Time now);
  PageCache::Options PageOptions();
  bool CutOffSlowest(bool in_any_case);
  void Spend(CpuBudget* budget, Time now);
  SnapshotSet ReadAll();
  std::vector<Family> ReadFamilies(PageFormat format);
  std::string MakeText() { return TextFormat(ReadFamilies(PageFormat::kText)); }
  std::string MakeOpenMetrics() {
    return OpenMetricsFormat(ReadFamilies(PageFormat::kOpenMetrics));
  }
  std::string MakeProtobuf() { return ProtobufFormat(ReadFamilies(PageFormat::kProtobuf)); }
  std::string MakeCommunicators();
  std::string MakeSnapshots();
  void LeaveClients();
  void Accept(Time now);
  int AcceptInto(Connection* connection, Time now);
  Connection* PlaceForClient(Time now);
  void LogOnce(bool* logged, std::string_view message, std::string_view reason) noexcept;

  const ServerOptions options_;
  const Body status_page_;
  const Body healthy_;
  pthread_t thread_{};
  // Set by Stop() before it writes to wake_, read after that was read: the write orders them, too.
  std::atomic<bool> stopping_{false};
  std::atomic<bool> left_behind_{false};
  std::atomic<bool> leaving_{false};  // likewise, by SayGoodbye()
  bool left_ = false;
  Node node_;
  std::vector<pollfd> polled_;     // reused
  SharedDescriptor wake_;          // an eventfd: there is something to look at
  SharedDescriptor ended_;         // an eventfd: the thread is about to return
  SharedDescriptor said_goodbye_;  // an eventfd
  std::array<Connection, kMaxConnections> connections_;
  Time accept_from_{};  // no client is accepted before
  PageCache pages_;
  ScrapeStats stats_;
  Diagnosis diagnosis_;
  CpuBudget clients_budget_;
  CpuBudget handover_budget_;
  std::chrono::nanoseconds cpu_accounted_{0};  // of what the thread has used
  bool logged_page_failure_ = false;
  bool logged_accept_failure_ = false;
  bool logged_loop_failure_ = false;
};

bool Server::Thread::Start(std::string* error) {
  {
    const ForkGuard guard;
    for (SharedDescriptor* event : {&wake_, &ended_, &said_goodbye_}) {
      event->Set(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    }
  }
  if (wake_.get() < 0 || ended_.get() < 0 || said_goodbye_.get() < 0) {
    *error = absl::StrCat("cannot open an eventfd: ", ErrorText(errno));
    return false;
  }
  // A thread starts with its creator's mask, and must not run a handler even once.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  int result = pthread_create(&thread_, &attributes, &Main, this);
  // A job with very large thread-local variables: what its own threads get will do.
  if (result == EINVAL) result = pthread_create(&thread_, nullptr, &Main, this);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (result != 0) {
    *error = absl::StrCat("cannot start a thread: ", ErrorText(result));
    return false;
  }
  pthread_setname_np(thread_, "pulse-http");
  return true;
}

void Server::Thread::SayGoodbye() {
  leaving_.store(true, std::memory_order_release);
  Signal(wake_);
  WaitFor(said_goodbye_, kGoodbyeTimeout);
}

bool Server::Thread::Stop() {
  stopping_.store(true, std::memory_order_release);
  Signal(wake_);
  const bool ended = WaitFor(ended_, kStopTimeout);
  // Whoever sets it second knows that the other has gone on, and deletes.
  if (!ended && !left_behind_.exchange(true, std::memory_order_acq_rel)) {
    pthread_detach(thread_);
    return false;
  }
  pthread_join(thread_, nullptr);
  return true;
}

void* Server::Thread::Main(void* self) {
  auto* thread = static_cast<Thread*>(self);
  const sched_param batch{};
  sched_setscheduler(0, SCHED_BATCH, &batch);  // this thread; where it is refused, as it was
  thread->Loop();
  if (thread->left_behind_.exchange(true, std::memory_order_acq_rel)) {
    delete thread;
    return nullptr;
  }
  // Stop() waits for this before it joins, and only then deletes.
  Signal(thread->ended_);
  return nullptr;
}

void Server::Thread::Loop() {
  while (!stopping_.load(std::memory_order_acquire)) {
    try {
      Round();
    } catch (const std::exception& e) {
      StartOver(e.what());
    } catch (...) {
      StartOver("unknown exception");
    }
  }
  for (Connection& connection : connections_) connection.Close();
  node_.Close();
}

// Memory ran out, in all likelihood: go on with nothing, and not at once.
void Server::Thread::StartOver(std::string_view what) noexcept {
  LogOnce(&logged_loop_failure_, "HTTP endpoint: all connections closed after: ", what);
  for (Connection& connection : connections_) connection.Close();
  Pause();
}

// Waits for the first of a client, another process, an event of a connection, a deadline, and
// Stop().
void Server::Thread::Round() {
  // Nothing but what is open: poll() refuses more entries than the process may have descriptors.
  polled_.clear();
  std::array<Connection*, kMaxConnections> waiting;
  const Time start = MonotonicNow();
  Time next = node_.next();
  const bool may_serve = clients_budget_.Allows(start);
  if (!may_serve) next = std::min(next, clients_budget_.allows_from());
  const bool may_take = handover_budget_.Allows(start);
  if (!may_take) next = std::min(next, handover_budget_.allows_from());
  for (Connection& connection : connections_) {
    if (!may_serve || !connection.in_use()) continue;
    waiting[polled_.size()] = &connection;
    polled_.push_back({connection.fd(), connection.poll_events(), 0});
    next = std::min(next, connection.deadline());
  }
  const std::size_t connections = polled_.size();
  polled_.push_back({wake_.get(), POLLIN, 0});
  if (options_.guard != nullptr) {
    polled_.push_back({may_serve ? options_.guard->event() : -1, POLLIN, 0});
  }
  const Time accept_from = std::max(accept_from_, node_.accept_from());
  const bool serving = node_.is_serving();
  const bool accepting = serving && may_serve && accept_from <= start;
  if (accepting) {
    polled_.push_back({node_.listener(), POLLIN, 0});
  } else if (serving && may_serve) {
    next = std::min(next, accept_from);
  }
  const std::size_t others = polled_.size();
  node_.AppendPolled(&polled_, may_take);
  if (poll(polled_.data(), polled_.size(), TimeoutUntil(next, start)) < 0) {
    // The limit of descriptors was lowered below what is open, or the kernel has no memory.
    if (errno != EINTR) Pause();
    return;
  }
  const Time now = MonotonicNow();
  if (polled_[connections].revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = read(wake_.get(), &count, sizeof(count));
  }
  if (!left_ && leaving_.load(std::memory_order_acquire)) {
    left_ = true;
    node_.SayGoodbye();
    Signal(said_goodbye_);
  }
  if (options_.guard != nullptr && polled_[connections + 1].revents != 0) AnswerParked(now);
  Spend(&clients_budget_, now);
  node_.Handle(polled_.data() + others, now);
  Spend(&handover_budget_, now);
  if (serving && !node_.is_serving()) LeaveClients();
  for (std::size_t i = 0; i < connections; ++i) {
    if (!waiting[i]->in_use()) continue;  // gave way to another one's new page
    if (polled_[i].revents != 0) {
      Serve(waiting[i], polled_[i].revents, now);
    } else if (waiting[i]->deadline() <= now) {
      waiting[i]->Close();
    }
  }
  if (accepting && node_.is_serving() && polled_[others - 1].revents != 0) Accept(now);
  Spend(&clients_budget_, now);
}

// All that the thread did since the last time and that was not for a page.
void Server::Thread::Spend(CpuBudget* budget, Time now) {
  const std::chrono::nanoseconds used = CpuTime() - pages_.cpu_spent();
  budget->Spend(used - cpu_accounted_, now);
  cpu_accounted_ = used;
}

// Another process serves from now on: what is being sent is sent, and that is all.
void Server::Thread::LeaveClients() {
  for (Connection& connection : connections_) {
    if (connection.state() == Connection::State::kReading ||
        connection.state() == Connection::State::kParked) {
      connection.Close();
    }
    connection.EndAfterResponse();
  }
}

void Server::Thread::Serve(Connection* connection, short events, Time now) {
  const bool writing = connection->state() == Connection::State::kWriting;
  // POLLHUP and POLLERR come unasked; the call that follows tells what they mean. A parked one is
  // polled for nothing else.
  const bool open = (events & POLLNVAL) == 0 && connection->state() != Connection::State::kParked &&
                    (writing ? connection->Send(now) : connection->Receive(now));
  if (!open || connection->deadline() <= now) {
    connection->Close();
    return;
  }
  AnswerRequests(connection, now);
}

void Server::Thread::AnswerRequests(Connection* connection, Time now) {
  // Several when the client did not wait for the responses; at most what fits into one input.
  while (connection->state() == Connection::State::kReading) {
    HttpRequest request;
    switch (connection->NextRequest(&request)) {
      case ParseResult::kIncomplete:
        return;
      case ParseResult::kBad:
        Respond(connection, HttpRequest(), connection->head_too_long() ? 431 : 400, kTextType,
                nullptr, now);
        break;
      case ParseResult::kOk:
        Answer(connection, request, now);
        break;
    }
  }
}

// The guard has come to a verdict, about one of them at least.
void Server::Thread::AnswerParked(Time now) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = read(options_.guard->event(), &count, sizeof(count));
  for (Connection& connection : connections_) {
    if (connection.state() != Connection::State::kParked) continue;
    const HttpRequest request = connection.parked();
    Answer(&connection, request, now);
    AnswerRequests(&connection, now);
  }
}

// False when the request is not to be answered, or not yet.
bool Server::Thread::Admit(Connection* connection, const HttpRequest& request, Time now) {
  if (options_.guard == nullptr) return true;
  switch (options_.guard->Check(request.authorization)) {
    case Guard::Verdict::kGranted:
      return true;
    case Guard::Verdict::kRefused:
      Respond(connection, request, 401, kTextType, nullptr, now);
      return false;
    case Guard::Verdict::kPending:
      connection->Park(request, now);
      return false;
  }
  return false;
}

void Server::Thread::Answer(Connection* connection, const HttpRequest& request, Time now) {
  if (!Admit(connection, request, now)) return;
  if (request.method == HttpRequest::Method::kOther) {
    Respond(connection, request, 405, kTextType, nullptr, now);
  } else if (request.has_body) {
    Respond(connection, request, 413, kTextType, nullptr, now);
  } else if (request.path == "/metrics") {
    RespondPage(connection, request, static_cast<std::size_t>(NegotiateFormat(request.accept)),
                now);
  } else if (request.path == "/api/v1/communicators") {
    RespondPage(connection, request, kCommunicatorsPage, now);
  } else if (request.path == "/api/v1/snapshots") {
    RespondPage(connection, request, kSnapshotsPage, now);
  } else if (request.path == "/api/v1/http_sd") {
    Respond(connection, request, 200, kJsonType,
            std::make_shared<const std::string>(node_.ServiceTargets()), now);
  } else if (request.path == "/healthz") {
    Respond(connection, request, 200, kTextType, healthy_, now);
  } else if (request.path == "/") {
    Respond(connection, request, 200, kHtmlType, status_page_, now, StatusPageHeaders());
  } else {
    Respond(connection, request, 404, kTextType, nullptr, now);
  }
}

// No body means one that repeats the status.
void Server::Thread::Respond(Connection* connection, const HttpRequest& request, int status,
                             std::string_view type, Body body, Time now, std::string_view more) {
  if (body == nullptr) {
    body = std::make_shared<const std::string>(absl::StrCat(status, " ", StatusText(status), "\n"));
  }
  const bool keep_alive = request.keep_alive && !request.has_body;
  std::string head =
      ResponseHead(status, type, body->size(), keep_alive,
                   options_.guard != nullptr ? absl::StrCat(options_.guard->headers(), more)
                                             : std::string(more));
  if (request.method == HttpRequest::Method::kHead) body.reset();
  connection->Respond(std::move(head), std::move(body), keep_alive, now);
  // Most responses fit into the socket's buffer, and cost no further round.
  if (!connection->Send(now)) connection->Close();
}

void Server::Thread::RespondPage(Connection* connection, const HttpRequest& request,
                                 std::size_t kind, Time now) {
  const PageCache::Answer answer = pages_.Get(kind, NegotiateGzip(request.accept_encoding));
  std::string more(answer.is_packed ? kVaryGzip : kVary);
  if (answer.age.count() > 0) absl::StrAppend(&more, "Age: ", answer.age.count(), "\r\n");
  if (answer.status == 503) {
    absl::StrAppend(&more, "Retry-After: ", answer.retry_after.count(), "\r\n");
  }
  const std::string_view type = answer.status != 200         ? kTextType
                                : kind == kCommunicatorsPage ? kJsonType
                                : kind == kSnapshotsPage
                                    ? kSnapshotMessageType
                                    : ContentType(static_cast<PageFormat>(kind));
  Respond(connection, request, answer.status, type, answer.body, now, more);
}

SnapshotSet Server::Thread::ReadAll() {
  SnapshotSet set = options_.source();
  node_.Read(&set, MonotonicNow());
  // Not taken for what is when that would be called a hang.
  set.stands_after_ns =
      std::min(kStoppedAfterNs, int64_t{std::chrono::nanoseconds(options_.hang_after).count()});
  stats_.segments_read += std::count_if(
      set.processes.begin(), set.processes.end(),
      [](const ProcessSnapshot& process) { return process.end == ProcessEnd::kLive; });
  return set;
}

std::vector<Family> Server::Thread::ReadFamilies(PageFormat format) {
  const SnapshotSet set = ReadAll();
  const int64_t now_ns = RealtimeNs();
  return BuildFamilies(set, options_.static_labels, stats_, options_.exposition, format,
                       diagnosis_.Update(set, now_ns), now_ns);
}

std::string Server::Thread::MakeCommunicators() {
  const SnapshotSet set = ReadAll();
  const int64_t now_ns = RealtimeNs();
  return CommunicatorsJson(set, now_ns, diagnosis_.Update(set, now_ns));
}

std::string Server::Thread::MakeSnapshots() {
  const SnapshotSet set = ReadAll();
  return WriteSnapshots(set, RealtimeNs(), std::chrono::nanoseconds(options_.hang_after).count());
}

PageCache::Options Server::Thread::PageOptions() {
  PageCache::Options options;
  options.kinds = {{[this] { return MakeText(); }, kFormatWeight},
                   {[this] { return MakeOpenMetrics(); }, kFormatWeight},
                   {[this] { return MakeProtobuf(); }, kFormatWeight},
                   {[this] { return MakeCommunicators(); }, kCommunicatorsWeight},
                   {[this] { return MakeSnapshots(); }, kSnapshotsWeight}};
  options.clock = [] { return MonotonicNow(); };
  options.cpu_time = CpuTime;
  options.cut_off_slowest = [this](bool in_any_case) { return CutOffSlowest(in_any_case); };
  options.on_failure = [this](const std::string& reason) {
    LogOnce(&logged_page_failure_, "HTTP endpoint: cannot make the page: ", reason);
  };
  options.on_work = [this](double seconds, bool made) {
    if (made) stats_.pages += 1;
    stats_.seconds += seconds;
    // What one page took is in pieces that the next one does not fit into. Not in a process of a
    // job: it would hold up the job's own threads.
    if (made && options_.peers.agent) malloc_trim(0);
  };
  options.cpu_share = options_.cpu_share * kPagesShare;
  return options;
}

// Of the connections that are being sent a page, the one that has taken longest.
bool Server::Thread::CutOffSlowest(bool in_any_case) {
  Connection* slowest = nullptr;
  for (Connection& connection : connections_) {
    if (connection.body() == nullptr) continue;
    if (slowest == nullptr || connection.deadline() < slowest->deadline()) slowest = &connection;
  }
  if (slowest == nullptr) return false;
  const Time started = slowest->deadline() - kResponseTimeout;
  if (!in_any_case && MonotonicNow() - started < kPageGrace) return false;
  slowest->Close();
  return true;
}

void Server::Thread::Accept(Time now) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    Connection* connection = PlaceForClient(now);
    if (connection == nullptr) return;
    const int fd = AcceptInto(connection, now);
    if (fd < 0) {
      // Of the network's errors a pending client may bring (accept(2)), the next round hears no
      // more.
      const bool descriptors_or_memory =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      const bool broken = errno == EBADF || errno == EINVAL || errno == ENOTSOCK;
      if (descriptors_or_memory || broken) {
        accept_from_ = now + kPause;
        LogOnce(&logged_accept_failure_,
                "HTTP endpoint: cannot accept, will try again: ", ErrorText(errno));
      }
      return;
    }
    // The end of a page must not wait for the client's delayed acknowledgement of what came before.
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (options_.guard != nullptr) connection->SetTransport(options_.guard->MakeTransport(fd));
  }
}

int Server::Thread::AcceptInto(Connection* connection, Time now) {
  const ForkGuard guard;
  const int fd = accept4(node_.listener(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return fd;
  connection->Close();
  connection->Open(fd, now);
  return fd;
}

// A free connection, or that which a new client may replace. Null when all may still keep their
// place; nothing is accepted then until the first of them may not.
Connection* Server::Thread::PlaceForClient(Time now) {
  Connection* place = &connections_[0];
  for (Connection& connection : connections_) {
    if (!connection.in_use()) return &connection;
    if (connection.replaceable_from() < place->replaceable_from()) place = &connection;
  }
  if (place->replaceable_from() <= now) return place;
  accept_from_ = place->replaceable_from();
  return nullptr;
}

void Server::Thread::LogOnce(bool* logged, std::string_view message,
                             std::string_view reason) noexcept {
  if (*logged) return;
  *logged = true;
  try {
    if (options_.log) options_.log(LogLevel::kWarning, absl::StrCat(message, reason));
  } catch (...) {
    // There is nowhere left to say it.
  }
}

Server::Server(Thread* thread, uint16_t port, std::string address)
    : thread_(thread), port_(port), address_(std::move(address)) {}

std::unique_ptr<Server> Server::Start(ServerOptions options, std::string* error) {
  auto thread = std::make_unique<Thread>(std::move(options));
  if (!thread->Open(error)) return nullptr;
  const uint16_t port = thread->node().port();
  std::string address = thread->node().address();
  if (!thread->Start(error)) return nullptr;
  return std::unique_ptr<Server>(new Server(thread.release(), port, std::move(address)));
}

Server::~Server() { Stop(); }

void Server::Stop() {
  if (thread_ == nullptr) return;
  if (thread_->Stop()) delete thread_;
  thread_ = nullptr;
}

void Server::SayGoodbye() {
  if (thread_ != nullptr) thread_->SayGoodbye();
}

void Server::PrepareFork() { ForkGuard::Lock(); }
void Server::ParentAfterFork() { ForkGuard::Unlock(); }
void Server::ResetAfterFork() { ForkGuard::ResetInChild(); }

void Server::AbandonAfterFork() {
  ForkGuard::ResetInChild();
  if (thread_ == nullptr) return;
  thread_->CloseDescriptors();
  thread_ = nullptr;
}

}  // namespace nccl_pulse
