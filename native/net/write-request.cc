#include "net/write-request.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>

#include "core/napi.h"
#include "net/byte-codec.h"

namespace procwire {
namespace {

// The general parser handles longer ids and checks their limits.
constexpr size_t kMaxFastIdBytes = 256;

class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool take(char expected) {
    skipSpace();
    if (at_ == end_ || *at_ != expected) return false;
    at_++;
    return true;
  }

  // Reads a string without escapes. Only finds the closing quote; the caller validates the content.
  bool string(std::string_view& found) {
    if (!take('"')) return false;
    const char* close = static_cast<const char*>(memchr(at_, '"', static_cast<size_t>(end_ - at_)));
    if (!close) return false;
    found = std::string_view(at_, static_cast<size_t>(close - at_));
    at_ = close + 1;
    return true;
  }

  // Reads an id: an integer that a double represents exactly, or a string. Returns its JSON text.
  bool id(std::string_view& found) {
    skipSpace();
    const char* from = at_;
    std::string_view text;
    if (at_ < end_ && *at_ == '"') {
      if (!string(text) || !isPlain(text)) return false;
    } else {
      if (at_ < end_ && *at_ == '-') at_++;
      const char* digits = at_;
      while (at_ < end_ && *at_ >= '0' && *at_ <= '9') at_++;
      size_t count = static_cast<size_t>(at_ - digits);
      if (count == 0 || count > 15 || (at_ < end_ && isNumberTail(*at_))) return false;
      // Accepts only canonical numbers: no leading zeros, no negative zero.
      if (*digits == '0' && (count > 1 || digits != from)) return false;
    }
    found = std::string_view(from, static_cast<size_t>(at_ - from));
    return true;
  }

  bool atEnd() {
    skipSpace();
    return at_ == end_;
  }

  static bool isPlain(std::string_view text) {
    for (char letter : text)
      if (letter < 0x20 || letter > 0x7e || letter == '\\') return false;
    return true;
  }

 private:
  static bool isNumberTail(char letter) { return letter == '.' || letter == 'e' || letter == 'E'; }

  void skipSpace() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) at_++;
  }

  const char* at_;
  const char* end_;
};

// Reads `member` if the key matches and the member was not read before.
bool readOnce(std::string_view key, std::string_view expected, std::string_view& member, Scanner& scanner) {
  return key == expected && member.data() == nullptr && scanner.string(member);
}

bool parseParams(Scanner& scanner, WriteRequest& request) {
  if (!scanner.take('{')) return false;
  do {
    std::string_view key;
    if (!scanner.string(key) || !scanner.take(':')) return false;
    if (!readOnce(key, "processId", request.processId, scanner) &&
        !readOnce(key, "writeId", request.writeId, scanner) && !readOnce(key, "chunk", request.chunk, scanner))
      return false;
  } while (scanner.take(','));
  return scanner.take('}');
}

}  // namespace

bool parseWriteRequest(std::string_view text, WriteRequest& request) {
  Scanner scanner(text);
  std::string_view method;
  bool params = false;
  if (!scanner.take('{')) return false;
  do {
    std::string_view key;
    if (!scanner.string(key) || !scanner.take(':')) return false;
    if (key == "id" && request.id.data() == nullptr) {
      if (!scanner.id(request.id)) return false;
    } else if (key == "method" && method.data() == nullptr) {
      if (!scanner.string(method) || method != "process/write") return false;
    } else if (key == "params" && !params) {
      params = true;
      if (!parseParams(scanner, request)) return false;
    } else {
      return false;
    }
  } while (scanner.take(','));
  if (!scanner.take('}') || !scanner.atEnd()) return false;
  if (std::max({request.id.size(), request.processId.size(), request.writeId.size()}) > kMaxFastIdBytes) return false;
  return request.id.data() && method.data() && request.processId.data() && request.chunk.data() &&
         Scanner::isPlain(request.processId) && Scanner::isPlain(request.writeId) &&
         (request.writeId.data() == nullptr || !request.writeId.empty());
}

bool writeRequestMembers(napi_env env, const WriteRequest& request, napi_value members[4]) {
  const std::string_view chunk = request.chunk;
  const size_t length = base64DecodedLength(chunk);
  void* memory;
  if (!NAPI_OK(napi_create_buffer(env, length, &memory, &members[3]))) return false;
  if (base64Decode(reinterpret_cast<const uint8_t*>(chunk.data()), chunk.size(), static_cast<uint8_t*>(memory)) !=
      static_cast<ptrdiff_t>(length))
    return false;
  members[0] = request.id[0] == '"' ? asciiToValue(env, request.id.substr(1, request.id.size() - 2))
                                    : toValue(env, strtod(std::string(request.id).c_str(), nullptr));
  members[1] = asciiToValue(env, request.processId);
  if (request.writeId.data()) members[2] = asciiToValue(env, request.writeId);
  else NAPI_CHECK(napi_get_undefined(env, &members[2]));
  return true;
}

}  // namespace procwire
