// The part of the protocol that the scenarios use. The client searches messages for field names and parses no JSON.
#pragma once

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <map>

#include "websocket.hpp"

inline double nowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

inline double cpuSeconds() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

inline std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out + "\"";
}

inline std::string base64(std::string_view bytes) {
  static const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = static_cast<unsigned char>(bytes[i]) << 16;
    if (i + 1 < bytes.size()) group |= static_cast<unsigned char>(bytes[i + 1]) << 8;
    if (i + 2 < bytes.size()) group |= static_cast<unsigned char>(bytes[i + 2]);
    out.push_back(digits[group >> 18]);
    out.push_back(digits[group >> 12 & 63]);
    out.push_back(i + 1 < bytes.size() ? digits[group >> 6 & 63] : '=');
    out.push_back(i + 2 < bytes.size() ? digits[group & 63] : '=');
  }
  return out;
}

inline std::string decodeBase64(std::string_view text) {
  std::string out;
  uint32_t group = 0;
  int bits = 0;
  for (char c : text) {
    int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                : c >= 'a' && c <= 'z' ? c - 'a' + 26
                : c >= '0' && c <= '9' ? c - '0' + 52
                : c == '+'             ? 62
                : c == '/'             ? 63
                                       : -1;
    if (value < 0) break;
    group = group << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits >= 8) out.push_back(static_cast<char>(group >> (bits -= 8)));
  }
  return out;
}

enum class Kind { response, error, output, exited, closed, other };

struct Event {
  Kind kind = Kind::other;
  long id = -1;
  std::string_view processId;
  long seq = 0;
  std::string_view chunk;
  std::string_view text;
  /// Nothing of its process is to come any more.
  bool last = false;

  size_t bytes() const {
    size_t padding = 0;
    while (padding < chunk.size() && chunk[chunk.size() - 1 - padding] == '=') padding++;
    return chunk.size() / 4 * 3 - padding;
  }
};

inline std::string_view stringField(std::string_view text, std::string_view name) {
  size_t at = text.find(name);
  if (at == std::string_view::npos) return {};
  size_t start = at + name.size();
  const void* end = memchr(text.data() + start, '"', text.size() - start);
  if (end == nullptr) fail("a string without an end");
  return text.substr(start, static_cast<size_t>(static_cast<const char*>(end) - text.data()) - start);
}

inline long numberField(std::string_view text, std::string_view name) {
  size_t at = text.find(name);
  return at == std::string_view::npos ? -1 : strtol(text.data() + at + name.size(), nullptr, 10);
}

inline Event look(std::string_view text) {
  Event event;
  event.text = text;
  // Long messages are output. Their other fields are before or right after the chunk.
  std::string_view method = stringField(text.substr(0, std::min<size_t>(text.size(), 256)), "\"method\":\"");
  if (method.empty()) {
    event.kind = text.find("\"error\":{") != std::string_view::npos ? Kind::error : Kind::response;
    event.id = numberField(text, "\"id\":");
    return event;
  }
  if (method == "process/output") event.kind = Kind::output;
  if (method == "process/exited") event.kind = Kind::exited;
  if (method == "process/closed") event.kind = Kind::closed;
  if (event.kind == Kind::other) return event;
  event.processId = stringField(text, "\"processId\":\"");
  event.seq = numberField(text, "\"seq\":");
  if (event.kind == Kind::output) event.chunk = stringField(text, "\"chunk\":\"");
  return event;
}

struct StartOptions {
  bool tty = false;
  bool pipeStdin = false;
  /// Only where the connection has asked for the extensions.
  std::string lifetime = "";
};

/// One connection after its handshake. A process has ended for it when every number up to that of `closed` has come:
/// the peer now and then sends two events the other way round, which its protocol allows.
class ExecClient {
 public:
  ExecClient(const Address& address, bool quickAck, bool isExtended = false) : socket(address, quickAck) {
    std::string extensions = isExtended ? ",\"extensions\":[\"attach\"]" : "";
    socket.send("{\"id\":0,\"method\":\"initialize\",\"params\":{\"clientName\":\"bench\"" + extensions + "}}");
    if (waitFor([](const Event& event) { return event.id == 0; }).kind != Kind::response)
      fail("initialize was refused");
    socket.send("{\"method\":\"initialized\"}");
  }

  std::string newProcess() {
    static long counter = 0;
    return "b" + std::to_string(getpid()) + "-" + std::to_string(__atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED));
  }

  long start(const std::string& processId, const std::vector<std::string>& argv, StartOptions options = {}) {
    std::string words;
    for (const auto& word : argv) words += (words.empty() ? "" : ",") + quoted(word);
    return call("process/start", "\"processId\":" + quoted(processId) + ",\"argv\":[" + words +
                                     "],\"cwd\":\"file:///tmp\",\"env\":{\"PATH\":\"/usr/local/bin:/usr/bin:/"
                                     "bin\",\"TERM\":\"xterm\"},\"tty\":" +
                                     (options.tty ? "true" : "false") +
                                     ",\"pipeStdin\":" + (options.pipeStdin ? "true" : "false") +
                                     (options.lifetime.empty() ? "" : ",\"lifetime\":" + quoted(options.lifetime)));
  }

  long write(const std::string& processId, const std::string& encoded) {
    long id = nextId_ + 1;
    return call("process/write", "\"processId\":" + quoted(processId) + ",\"writeId\":\"w" + std::to_string(id) +
                                     "\",\"chunk\":\"" + encoded + "\"");
  }

  long terminate(const std::string& processId) {
    return call("process/terminate", "\"processId\":" + quoted(processId));
  }

  /// Like any received event, but false when the buffer holds no more.
  bool next(Event& event) {
    std::string_view message;
    if (!socket.next(message)) return false;
    event = look(message);
    check(event);
    if (onEvent) onEvent(event);
    return true;
  }

  Event read() {
    Event event;
    while (!next(event)) socket.receive(true);
    return event;
  }

  template <typename Wanted>
  Event waitFor(Wanted wanted) {
    for (;;) {
      Event event = read();
      if (wanted(event)) return event;
    }
  }

  void waitForAnswer(long id) {
    if (waitFor([id](const Event& event) { return event.id == id; }).kind == Kind::error) fail("a request was refused");
  }

  WebSocket socket;
  /// Called with every event, also if another call waits for it.
  std::function<void(const Event&)> onEvent;

 private:
  long call(const char* method, const std::string& params) {
    long id = ++nextId_;
    message_ = "{\"id\":" + std::to_string(id) + ",\"method\":\"" + method + "\",\"params\":{" + params + "}}";
    socket.send(message_);
    return id;
  }

  void check(Event& event) {
    if (event.kind == Kind::error) fail("the server answered with an error: " + std::string(event.text.substr(0, 300)));
    if (event.processId.empty()) return;
    auto found = progress_.find(event.processId);
    if (found == progress_.end()) found = progress_.emplace(std::string(event.processId), Progress{}).first;
    Progress& progress = found->second;
    if (event.seq <= 0) fail("an event without a sequence number");
    progress.count++;
    progress.highest = std::max(progress.highest, event.seq);
    if (event.kind == Kind::closed) progress.closedAt = event.seq;
    if (progress.closedAt == 0 || progress.count < progress.closedAt) return;
    if (progress.highest > progress.closedAt || progress.count > progress.closedAt)
      fail("an event after `closed`, or one sent twice");
    event.last = true;
    progress_.erase(found);
  }

  struct Progress {
    long count = 0, highest = 0, closedAt = 0;
  };

  long nextId_ = 0;
  std::string message_;
  std::map<std::string, Progress, std::less<>> progress_;
};
