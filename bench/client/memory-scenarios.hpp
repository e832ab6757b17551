// Scenarios that leave memory behind in a server. The benchmark reads the server's memory meanwhile and afterwards.
#pragma once

#include <sys/epoll.h>

#include <memory>

#include "scenario.hpp"

/// Connections with several `cat` each: `echoes` lines at `rate` per second, then `ms` milliseconds at full speed.
class EchoLoad {
 public:
  EchoLoad(const Address& address, size_t connections, size_t processes) : peers_(connections) {
    for (size_t at = 0; at < connections; at++) {
      Peer& peer = peers_[at];
      peer.client = std::make_unique<ExecClient>(address, true);
      for (size_t n = 0; n < processes; n++) {
        peer.processes.push_back(peer.client->newProcess());
        peer.client->waitForAnswer(peer.client->start(peer.processes.back(), {"cat"}, {.pipeStdin = true}));
      }
      epoll_event interest{};
      interest.events = EPOLLIN;
      interest.data.u64 = at;
      epoll_ctl(epoll_, EPOLL_CTL_ADD, peer.client->socket.fd(), &interest);
    }
  }

  void paced(size_t echoes, double perSecond) {
    const double before = nowMs();
    for (size_t sent = 0; echoed_ < echoes;) {
      const auto due = static_cast<size_t>((nowMs() - before) * perSecond / 1e3);
      for (; sent < std::min(due, echoes); sent++) {
        Peer& peer = peers_[sent % peers_.size()];
        peer.client->write(peer.processes[sent / peers_.size() % peer.processes.size()], line_);
      }
      receive(1, false);
    }
  }

  void fullSpeed(double ms) {
    const double until = nowMs() + ms;
    for (Peer& peer : peers_)
      for (const std::string& process : peer.processes) peer.client->write(process, line_);
    while (nowMs() < until) receive(100, true);
  }

  size_t echoed() const { return echoed_; }

 private:
  struct Peer {
    std::unique_ptr<ExecClient> client;
    std::vector<std::string> processes;
  };

  void receive(int timeoutMs, bool repeats) {
    std::vector<epoll_event> ready(peers_.size());
    const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), timeoutMs);
    for (int i = 0; i < count; i++) {
      Peer& peer = peers_[ready[static_cast<size_t>(i)].data.u64];
      peer.client->socket.receive(false);
      Event event;
      while (peer.client->next(event)) {
        if (event.kind != Kind::output) continue;
        // One chunk may contain several lines.
        echoed_ += event.bytes() / kLineBytes;
        if (repeats) peer.client->write(std::string(event.processId), line_);
      }
    }
  }

  static constexpr size_t kLineBytes = 64;
  const std::string line_ = base64(std::string(kLineBytes, 'e'));
  const int epoll_ = epoll_create1(EPOLL_CLOEXEC);
  std::vector<Peer> peers_;
  size_t echoed_ = 0;
};

inline void echoLoad(const Address& address, const Options& options) {
  EchoLoad load(address, static_cast<size_t>(options.number("connections", 500)),
                static_cast<size_t>(options.number("processes", 4)));
  load.paced(static_cast<size_t>(options.number("echoes", 240000)), static_cast<double>(options.number("rate", 8000)));
  load.fullSpeed(static_cast<double>(options.number("ms", 15000)));
  Report().add("echoes", static_cast<double>(load.echoed())).print();
}

/// Reads `bytes` of output with a pause before each receive call.
inline void pacedReader(const Address& address, const Options& options) {
  ExecClient client(address, true);
  const std::string processId = client.newProcess();
  const long total = options.number("bytes", 1 << 30);
  const auto pauseUs = static_cast<useconds_t>(options.number("us", 500));
  client.start(processId, {"head", "-c", std::to_string(total), "/dev/zero"});
  const double before = nowMs();
  size_t bytes = 0;
  for (bool closed = false; !closed;) {
    usleep(pauseUs);
    client.socket.receive(true);
    Event event;
    while (client.next(event)) {
      if (event.kind == Kind::output) bytes += event.bytes();
      closed |= event.last;
    }
  }
  if (bytes != static_cast<size_t>(total)) fail("read " + std::to_string(bytes) + " of " + std::to_string(total));
  Report().add("mibPerSecond", static_cast<double>(total) / 1048576 / (nowMs() - before) * 1e3).print();
}

/// Runs `n` processes one after another, reads their output, and holds the connection.
inline void retained(const Address& address, const Options& options) {
  ExecClient client(address, true);
  hold("before");
  for (long n = options.number("n", 150); n > 0; n--) {
    const std::string processId = client.newProcess();
    client.start(processId, {"head", "-c", std::to_string(options.number("bytes", 2200000)), "/dev/zero"});
    while (!client.read().last) {}
  }
  hold("ended");
  Report().add("processes", static_cast<double>(options.number("n", 150))).print();
}
