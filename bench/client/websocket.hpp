// A WebSocket client whose cost does not dominate a benchmark: blocking sends, one large receive buffer, no copy of a
// message that arrived completely. It only checks for errors of a broken server.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

[[noreturn]] inline void fail(const std::string& why) {
  fprintf(stderr, "bench-client: %s\n", why.c_str());
  exit(1);
}

struct Address {
  std::string host;
  int port;
};

inline Address parseUrl(const std::string& url) {
  const std::string scheme = "ws://";
  size_t colon = url.rfind(':');
  if (url.compare(0, scheme.size(), scheme) != 0 || colon <= scheme.size()) fail("expected ws://IP:PORT, got " + url);
  return {url.substr(scheme.size(), colon - scheme.size()), atoi(url.c_str() + colon + 1)};
}

class WebSocket {
 public:
  WebSocket(const Address& address, bool quickAck) : quickAck_(quickAck) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(address.port));
    if (inet_pton(AF_INET, address.host.c_str(), &to.sin_addr) != 1) fail("not an IPv4 address: " + address.host);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
      fail("connect: " + std::string(strerror(errno)));
    int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (getrandom(&maskState_, sizeof maskState_, 0) != sizeof maskState_) fail("getrandom");
    maskState_ |= 1;
    buffer_.resize(512 * 1024);
    handshake(address);
  }
  WebSocket(const WebSocket&) = delete;
  WebSocket& operator=(const WebSocket&) = delete;
  ~WebSocket() { close(fd_); }

  int fd() const { return fd_; }

  void send(std::string_view text) { sendFrame(0x1, text); }

  /// Sets `message` to the next complete message and returns true, or returns false. The view is valid until the next
  /// call.
  bool next(std::string_view& message) {
    for (;;) {
      size_t have = end_ - begin_;
      const unsigned char* at = reinterpret_cast<unsigned char*>(buffer_.data()) + begin_;
      if (have < 2) return false;
      uint64_t length = at[1] & 0x7f;
      size_t header = 2;
      if (at[1] & 0x80) fail("the server masked a frame");
      if (length == 126) {
        if (have < 4) return false;
        length = static_cast<uint64_t>(at[2]) << 8 | at[3];
        header = 4;
      } else if (length == 127) {
        if (have < 10) return false;
        length = 0;
        for (int i = 0; i < 8; i++) length = length << 8 | at[2 + i];
        header = 10;
      }
      if (have < header + length) {
        needed_ = header + length;
        return false;
      }
      int opcode = at[0] & 0x0f;
      bool last = at[0] & 0x80;
      std::string_view payload(buffer_.data() + begin_ + header, length);
      begin_ += header + length;
      needed_ = 0;
      if (opcode == 0x9) sendFrame(0xa, payload);
      if (opcode == 0x8) fail("the server closed the connection");
      if (opcode >= 0x8) continue;
      if (last && fragments_.empty()) {
        message = payload;
        return true;
      }
      fragments_.append(payload);
      if (!last) continue;
      whole_ = std::move(fragments_);
      fragments_.clear();
      message = whole_;
      return true;
    }
  }

  /// Receives once; false when nothing is there and `wait` is false.
  bool receive(bool wait) {
    if (begin_ == end_) begin_ = end_ = 0;
    if (needed_ > buffer_.size() - begin_ || buffer_.size() - end_ < 64 * 1024) {
      memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
      if (needed_ + 64 * 1024 > buffer_.size()) buffer_.resize(needed_ + 64 * 1024);
    }
    ssize_t got = recv(fd_, buffer_.data() + end_, buffer_.size() - end_, wait ? 0 : MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) fail("the connection is gone");
    end_ += static_cast<size_t>(got);
    // The kernel re-enables delayed acknowledgements, so set the option again each time.
    if (quickAck_) {
      int on = 1;
      setsockopt(fd_, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
    }
    return true;
  }

  std::string_view read() {
    std::string_view message;
    while (!next(message)) receive(true);
    return message;
  }

 private:
  void handshake(const Address& address) {
    std::string request = "GET / HTTP/1.1\r\nHost: " + address.host + ":" + std::to_string(address.port) +
                          "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    writeAll(request.data(), request.size());
    for (;;) {
      receive(true);
      std::string_view seen(buffer_.data(), end_);
      size_t done = seen.find("\r\n\r\n");
      if (done == std::string_view::npos) continue;
      if (seen.find(" 101 ") == std::string_view::npos) fail("no upgrade: " + std::string(seen.substr(0, 80)));
      begin_ = done + 4;
      return;
    }
  }

  void sendFrame(int opcode, std::string_view payload) {
    out_.clear();
    out_.push_back(static_cast<char>(0x80 | opcode));
    if (payload.size() < 126) {
      out_.push_back(static_cast<char>(0x80 | payload.size()));
    } else if (payload.size() < 65536) {
      out_.push_back(static_cast<char>(0x80 | 126));
      out_.push_back(static_cast<char>(payload.size() >> 8));
      out_.push_back(static_cast<char>(payload.size()));
    } else {
      out_.push_back(static_cast<char>(0x80 | 127));
      for (int shift = 56; shift >= 0; shift -= 8) out_.push_back(static_cast<char>(payload.size() >> shift));
    }
    // A random key for each frame, because a server need not unmask with a zero key.
    uint32_t key = nextMask();
    char mask[4];
    memcpy(mask, &key, 4);
    out_.append(mask, 4);
    size_t start = out_.size();
    out_.append(payload);
    applyMask(out_.data() + start, payload.size(), key);
    writeAll(out_.data(), out_.size());
  }

  static void applyMask(char* data, size_t length, uint32_t key) {
    uint64_t wide = static_cast<uint64_t>(key) << 32 | key;
    size_t i = 0;
    for (; i + 8 <= length; i += 8) {
      uint64_t word;
      memcpy(&word, data + i, 8);
      word ^= wide;
      memcpy(data + i, &word, 8);
    }
    char mask[4];
    memcpy(mask, &key, 4);
    for (; i < length; i++) data[i] = static_cast<char>(data[i] ^ mask[i & 3]);
  }

  uint32_t nextMask() {
    maskState_ ^= maskState_ << 13;
    maskState_ ^= maskState_ >> 7;
    maskState_ ^= maskState_ << 17;
    return static_cast<uint32_t>(maskState_ >> 16) | 1;
  }

  void writeAll(const char* data, size_t length) {
    while (length > 0) {
      ssize_t sent = ::send(fd_, data, length, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) fail("send: " + std::string(strerror(errno)));
      data += sent;
      length -= static_cast<size_t>(sent);
    }
  }

  int fd_;
  bool quickAck_;
  uint64_t maskState_ = 0;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0, needed_ = 0;
  std::string fragments_, whole_, out_;
};
