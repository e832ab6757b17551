// bench-client SCENARIO [URL] [key=value ...]: runs one scenario against one server and prints one line of JSON.
// It exits with code 1 and prints the reason on a wrong response. A slow server is not a failure.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "memory-scenarios.hpp"

extern char** environ;

namespace {

bool isLast(const Event& event, const std::string& processId) { return event.last && event.processId == processId; }

// --- start and exit ---

double startAndExit(ExecClient& client, bool tty) {
  std::string processId = client.newProcess();
  double before = nowMs();
  long id = client.start(processId, {"/bin/true"}, {.tty = tty});
  bool answered = false, closed = false;
  while (!answered || !closed) {
    Event event = client.read();
    answered |= event.id == id;
    closed |= isLast(event, processId);
  }
  return nowMs() - before;
}

void spawnLatency(const Address& address, const Options& options) {
  ExecClient client(address, options.number("quickack", 1));
  bool tty = options.number("tty", 0);
  for (int i = 0; i < 3; i++) startAndExit(client, tty);
  std::vector<double> samples;
  for (long i = options.number("n", 100); i > 0; i--) samples.push_back(startAndExit(client, tty));
  Report().percentiles(samples).print();
}

/// Keeps `inflight` starts going, spread over the connections, until `n` processes have ended.
void spawnRate(const Address& address, const Options& options) {
  long total = options.number("n", 500), inflight = options.number("inflight", 32),
       connections = options.number("connections", 1);
  std::vector<std::unique_ptr<ExecClient>> clients;
  std::vector<pollfd> polled;
  for (long i = 0; i < connections; i++) {
    clients.push_back(std::make_unique<ExecClient>(address, options.number("quickack", 1)));
    polled.push_back({clients.back()->socket.fd(), POLLIN, 0});
  }
  long started = 0, ended = 0;
  auto startOne = [&](ExecClient& client) {
    if (started == total) return;
    started++;
    client.start(client.newProcess(), {"/bin/true"});
  };
  double before = nowMs();
  for (long i = 0; i < inflight; i++) startOne(*clients[static_cast<size_t>(i % connections)]);
  while (ended < total) {
    if (poll(polled.data(), polled.size(), 30000) <= 0) fail("nothing came for 30 s");
    for (size_t i = 0; i < polled.size(); i++) {
      if (!polled[i].revents) continue;
      clients[i]->socket.receive(false);
      Event event;
      while (clients[i]->next(event)) {
        if (!event.last) continue;
        ended++;
        startOne(*clients[i]);
      }
    }
  }
  Report().add("perSecond", static_cast<double>(total) / (nowMs() - before) * 1e3).print();
}

// --- output ---

struct Drained {
  size_t bytes = 0;
  size_t frames = 0;
  double firstMs = 0;
};

Drained drain(ExecClient& client, const std::string& processId,
              const std::function<void(const Drained&)>& onOutput = {}) {
  Drained drained;
  for (;;) {
    Event event = client.read();
    if (event.kind == Kind::output && event.processId == processId) {
      if (drained.frames++ == 0) drained.firstMs = nowMs();
      drained.bytes += event.bytes();
      if (onOutput) onOutput(drained);
    }
    if (isLast(event, processId)) return drained;
  }
}

Words outputCommand(const std::string& kind, long bytes, const std::string& self) {
  std::string size = std::to_string(bytes);
  if (kind == "head") return {"head", "-c", size, "/dev/zero"};
  if (kind == "yes") return {"sh", "-c", "yes | head -c " + size};
  if (kind == "dd")
    return {"sh", "-c", "dd if=/dev/zero bs=64k count=" + std::to_string(bytes / 65536) + " 2>/dev/null"};
  // Raw mode, so that the terminal does not change the number of bytes.
  if (kind == "pty") return {"sh", "-c", "stty raw; yes | head -c " + size};
  if (kind == "lines") return {self, "emit-lines", "n=" + size};
  fail("unknown output " + kind);
}

void outputThroughput(const Address& address, const Options& options, const std::string& self) {
  std::string kind = options.text("kind", "head");
  long amount = options.number("bytes", 256 << 20);
  size_t expected = static_cast<size_t>(kind == "lines" ? amount * 16 : amount);
  std::string lifetime = options.text("lifetime", "");
  ExecClient client(address, options.number("quickack", 1), !lifetime.empty());
  std::string processId = client.newProcess();
  double before = nowMs();
  client.start(processId, outputCommand(kind, amount, self), {.tty = kind == "pty", .lifetime = lifetime});
  Drained drained = drain(client, processId);
  double took = nowMs() - before;
  if (drained.bytes != expected)
    fail(kind + " gave " + std::to_string(drained.bytes) + " of " + std::to_string(expected) + " bytes");
  Report()
      .add("mibPerSecond", static_cast<double>(drained.bytes) / 1048576 / took * 1e3)
      .add("ms", took)
      .add("frames", static_cast<double>(drained.frames))
      .add("gib", static_cast<double>(drained.bytes) / 1073741824)
      .print();
}

/// The program of the `lines` output: one write for each line of 16 bytes.
int emitLines(const Options& options) {
  for (long i = 0, n = options.number("n", 200000); i < n; i++) {
    char line[32];
    snprintf(line, sizeof line, "line %010ld\n", i);
    if (::write(1, line, 16) != 16) return 1;
  }
  return 0;
}

// --- echo ---

const std::string KEY = base64("x");
const std::string LINE = base64("hello\n");

std::string startEcho(ExecClient& client, bool tty) {
  std::string processId = client.newProcess();
  if (tty) {
    // The terminal itself echoes each key, as it does under a shell.
    long id = client.start(processId, {"sh", "-c", "stty -icanon -isig min 1 time 0; printf R; exec cat >/dev/null"},
                           {.tty = true});
    bool answered = false, ready = false;
    while (!answered || !ready) {
      Event event = client.read();
      answered |= event.id == id;
      ready |= event.kind == Kind::output && event.processId == processId &&
               decodeBase64(event.chunk).find('R') != std::string::npos;
    }
  } else {
    client.waitForAnswer(client.start(processId, {"cat"}, {.pipeStdin = true}));
  }
  return processId;
}

double echoOnce(ExecClient& client, const std::string& processId, bool tty) {
  double before = nowMs();
  client.write(processId, tty ? KEY : LINE);
  client.waitFor([&](const Event& event) { return event.kind == Kind::output && event.processId == processId; });
  return nowMs() - before;
}

void echo(const Address& address, const Options& options) {
  bool tty = options.number("tty", 0);
  ExecClient client(address, options.number("quickack", 1));
  std::string processId = startEcho(client, tty);
  std::vector<double> samples;
  for (long i = 0; i < 50; i++) echoOnce(client, processId, tty);
  for (long i = options.number("n", 2000); i > 0; i--) samples.push_back(echoOnce(client, processId, tty));
  client.terminate(processId);
  client.waitFor([&](const Event& event) { return isLast(event, processId); });
  Report().percentiles(samples).print();
}

/// Many connections, each with a separate process and one line in transit at any time.
void echoMany(const Address& address, const Options& options) {
  long count = options.number("connections", 200);
  double duration = static_cast<double>(options.number("ms", 3000));
  struct Peer {
    std::unique_ptr<ExecClient> client;
    std::string processId;
    double sentAt = 0;
  };
  std::vector<Peer> peers(static_cast<size_t>(count));
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  for (size_t i = 0; i < peers.size(); i++) {
    Peer& peer = peers[i];
    peer.client = std::make_unique<ExecClient>(address, options.number("quickack", 1));
    peer.processId = startEcho(*peer.client, false);
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.u64 = i;
    epoll_ctl(epoll, EPOLL_CTL_ADD, peer.client->socket.fd(), &interest);
  }
  std::vector<double> samples;
  double before = nowMs(), until = before + duration;
  auto send = [&](Peer& peer) {
    peer.sentAt = nowMs();
    peer.client->write(peer.processId, LINE);
  };
  for (Peer& peer : peers) send(peer);
  std::vector<epoll_event> ready(peers.size());
  // At least one round trip each, even on a busy machine.
  while (nowMs() < until || samples.size() < peers.size()) {
    int n = epoll_wait(epoll, ready.data(), static_cast<int>(ready.size()), 10000);
    if (n <= 0) fail("nothing came for 10 s");
    for (int i = 0; i < n; i++) {
      Peer& peer = peers[ready[static_cast<size_t>(i)].data.u64];
      peer.client->socket.receive(false);
      Event event;
      while (peer.client->next(event)) {
        if (event.kind != Kind::output) continue;
        samples.push_back(nowMs() - peer.sentAt);
        send(peer);
      }
    }
  }
  Report()
      .add("perSecond", static_cast<double>(samples.size()) / (nowMs() - before) * 1e3)
      .percentiles(samples)
      .print();
}

// --- stdin ---

/// Until the process has taken every byte, not until the server has.
void upload(const Address& address, const Options& options) {
  long chunk = options.number("chunk", 65536), total = options.number("bytes", 256 << 20),
       window = options.number("window", 64);
  ExecClient client(address, options.number("quickack", 1));
  std::string processId = client.newProcess();
  client.waitForAnswer(
      client.start(processId, {"sh", "-c", "head -c " + std::to_string(total) + " >/dev/null"}, {.pipeStdin = true}));
  std::string encoded = base64(std::string(static_cast<size_t>(chunk), 'u'));
  double before = nowMs();
  bool closed = false;
  long sent = 0, waiting = 0;
  auto take = [&](const Event& event) {
    if (event.id > 0) waiting--;
    closed |= isLast(event, processId);
  };
  while (!closed) {
    Event event;
    while (client.next(event)) take(event);
    if (sent < total && waiting < window) {
      client.write(processId, encoded);
      sent += chunk;
      waiting++;
    } else if (!closed) {
      client.socket.receive(true);
    }
  }
  double took = nowMs() - before;
  Report().add("mibPerSecond", static_cast<double>(total) / 1048576 / took * 1e3).add("ms", took).print();
}

// --- many idle processes ---

void idle(const Address& address, const Options& options) {
  long count = options.number("n", 500);
  ExecClient client(address, options.number("quickack", 1));
  hold("before");
  double before = nowMs();
  // Limits concurrent requests, because the peer stops responding for good at some hundred pending requests.
  long window = options.number("window", 100);
  for (long started = 0, answered = 0; answered < count;) {
    if (started < count && started - answered < window) {
      client.start(client.newProcess(), {"sleep", "600"});
      started++;
    } else {
      answered += client.read().kind == Kind::response;
    }
  }
  double took = nowMs() - before;
  hold("started");
  Report().add("ms", took).print();
}

// --- under load ---

/// Starts or echoes while another process floods: over a separate connection, or with `same=1` over the same
/// connection.
void underFlood(const Address& address, const Options& options) {
  const size_t enough = 4u << 20;
  std::atomic<size_t> flooded{0};
  ExecClient client(address, options.number("quickack", 1));
  std::thread other;
  if (options.number("same", 0)) {
    const std::string flood = client.newProcess();
    client.onEvent = [flood, &flooded](const Event& event) {
      if (event.kind == Kind::output && event.processId == flood) flooded += event.bytes();
    };
    client.start(flood, {"yes"});
    while (flooded < enough) client.read();
  } else {
    other = std::thread([&] {
      ExecClient own(address, false);
      own.start(own.newProcess(), {"yes"});
      for (;;) {
        Event event = own.read();
        if (event.kind == Kind::output) flooded += event.bytes();
      }
    });
    while (flooded < enough) usleep(1000);
  }
  std::vector<double> samples;
  size_t floodedBefore = flooded;
  double before = nowMs();
  if (options.text("what", "spawn") == "spawn") {
    for (long i = options.number("n", 100); i > 0; i--) samples.push_back(startAndExit(client, false));
  } else {
    bool tty = options.number("tty", 0);
    std::string processId = startEcho(client, tty);
    for (long i = options.number("n", 500); i > 0; i--) samples.push_back(echoOnce(client, processId, tty));
  }
  double took = nowMs() - before;
  Report()
      .percentiles(samples)
      .add("floodMibPerSecond", static_cast<double>(flooded - floodedBefore) / 1048576 / took * 1e3)
      .print();
  fflush(stdout);
  // The flooding process ends with its session when the benchmark stops the server.
  _exit(0);
}

/// Stops reading in the middle of bulk output while the benchmark measures the server's memory. Then requests
/// termination of the process, still without reading, and prints how long that took, or -1 if it did not happen.
void slowReader(const Address& address, const Options& options) {
  ExecClient client(address, false);
  std::string processId = client.newProcess();
  client.start(processId, {"sh", "-c", "echo $$; exec head -c 8589934592 /dev/zero"});
  pid_t pid = 0;
  while (pid == 0) {
    Event event = client.read();
    if (event.kind == Kind::output) pid = atoi(decodeBase64(event.chunk.substr(0, 16)).c_str());
  }
  hold("stalled");
  double before = nowMs(), limit = static_cast<double>(options.number("ms", 4000)), took = -1;
  client.terminate(processId);
  while (nowMs() - before < limit) {
    // A zombie counts as exited.
    std::string path = "/proc/" + std::to_string(pid) + "/stat";
    char stat[256] = "";
    int fd = open(path.c_str(), O_RDONLY);
    if (fd >= 0 && ::read(fd, stat, sizeof stat - 1) < 0) stat[0] = 0;
    if (fd >= 0) close(fd);
    const char* paren = strrchr(stat, ')');
    if (paren == nullptr || paren[2] == 'Z') {
      took = nowMs() - before;
      break;
    }
    usleep(200);
  }
  Report().add("terminateMs", took).print();
}

// --- start of the server itself ---

/// From before the fork to the answer of `initialize`, and the CPU time the server had used by then.
int startup(const Words& command) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) fail("pipe");
  double before = nowMs();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid;
  if (posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ) != 0) fail("cannot start " + command[0]);
  close(out[1]);
  std::string url;
  char byte;
  while (::read(out[0], &byte, 1) == 1 && byte != '\n') url.push_back(byte);
  if (url.empty()) fail("the server told no URL");
  double listening = nowMs();
  {
    ExecClient client(parseUrl(url), true);
    double answered = nowMs();
    Report().add("ms", answered - before).add("listeningMs", listening - before).print();
    fflush(stdout);
  }
  kill(pid, SIGTERM);
  int status;
  waitpid(pid, &status, 0);
  return 0;
}

// --- baseline of this machine without a server ---

int spawnHere(const Words& command, int out, posix_spawn_file_actions_t* actions) {
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  if (out >= 0) posix_spawn_file_actions_adddup2(actions, out, 1);
  pid_t pid;
  if (posix_spawnp(&pid, argv[0], actions, nullptr, argv.data(), environ) != 0) fail("cannot start " + command[0]);
  return pid;
}

/// Start and exit without a server.
void startLimit(const Options& options) {
  std::vector<double> samples;
  for (long i = options.number("n", 100); i > 0; i--) {
    double before = nowMs();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    int pid = spawnHere({"/bin/true"}, -1, &actions), status;
    waitpid(pid, &status, 0);
    samples.push_back(nowMs() - before);
  }
  Report().percentiles(samples).print();
}

void limits(const Options& options, const std::string& self) {
  auto throughput = [&](const std::string& kind, long amount, int readEnd, int writeEnd) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    std::vector<char> buffer(256 * 1024);
    double before = nowMs();
    if (kind == "pty") posix_spawn_file_actions_adddup2(&actions, writeEnd, 0);
    int pid = spawnHere(outputCommand(kind, amount, self), writeEnd, &actions), status;
    close(writeEnd);
    size_t bytes = 0;
    for (ssize_t got; (got = ::read(readEnd, buffer.data(), buffer.size())) > 0;) bytes += static_cast<size_t>(got);
    close(readEnd);
    waitpid(pid, &status, 0);
    return static_cast<double>(bytes) / 1048576 / (nowMs() - before) * 1e3;
  };
  auto pipeThroughput = [&](const std::string& kind, long amount) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe");
    return throughput(kind, amount, ends[0], ends[1]);
  };
  Report report;
  for (const char* kind : {"head", "yes", "dd"})
    report.add(kind, pipeThroughput(kind, options.number("bytes", 256 << 20)));
  double lines = nowMs();
  pipeThroughput("lines", options.number("lines", 200000));
  report.add("linesMs", nowMs() - lines);
  int master, slave;
  if (openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) fail("openpty");
  fcntl(master, F_SETFD, FD_CLOEXEC);
  report.add("pty", throughput("pty", 32 << 20, master, slave)).print();
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  Words words(argv + 1, argv + argc);
  if (words.empty()) fail("expected a scenario");
  std::string scenario = words[0];
  char self[4096];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) fail("/proc/self/exe");
  std::string selfPath(self, static_cast<size_t>(length));
  words.erase(words.begin());
  if (scenario == "startup") return startup(words);
  if (scenario == "emit-lines") return emitLines(Options(words));
  if (scenario == "limits") return limits(Options(words), selfPath), 0;
  if (scenario == "start-limit") return startLimit(Options(words)), 0;

  if (words.empty()) fail("expected a URL");
  Address address = parseUrl(words[0]);
  words.erase(words.begin());
  Options options(words);
  if (scenario == "spawn") spawnLatency(address, options);
  else if (scenario == "spawn-rate") spawnRate(address, options);
  else if (scenario == "output") outputThroughput(address, options, selfPath);
  else if (scenario == "echo") echo(address, options);
  else if (scenario == "echo-many") echoMany(address, options);
  else if (scenario == "upload") upload(address, options);
  else if (scenario == "idle") idle(address, options);
  else if (scenario == "flood") underFlood(address, options);
  else if (scenario == "slow-reader") slowReader(address, options);
  else if (scenario == "echo-load") echoLoad(address, options);
  else if (scenario == "paced-reader") pacedReader(address, options);
  else if (scenario == "retained") retained(address, options);
  else fail("unknown scenario " + scenario);
  return 0;
}
