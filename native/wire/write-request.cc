#include "wire/write-request.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>

#include "wire/bytes.h"

namespace procwire {
namespace {

// An id longer than this is unusual: the general parser knows whether it may be that long.
constexpr size_t kUsualIdBytes = 256;

class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool take(char wanted) {
    skipSpace();
    if (at_ == end_ || *at_ != wanted) return false;
    at_++;
    return true;
  }

  // A string without escapes; only its closing quote is looked for, its content is checked by the user.
  bool string(std::string_view& found) {
    if (!take('"')) return false;
    const char* close = static_cast<const char*>(memchr(at_, '"', static_cast<size_t>(end_ - at_)));
    if (!close) return false;
    found = std::string_view(at_, static_cast<size_t>(close - at_));
    at_ = close + 1;
    return true;
  }

  // A whole number that a double holds exactly, or a string; as it stands in the text.
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
      // Only as a number is written out again: no zero before others, no minus before zero.
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

// Sets `member` when the key is the one it is for and it was not set before.
bool once(std::string_view key, std::string_view wanted, std::string_view& member, Scanner& scanner) {
  return key == wanted && member.data() == nullptr && scanner.string(member);
}

bool parseParams(Scanner& scanner, WriteRequest& request) {
  if (!scanner.take('{')) return false;
  do {
    std::string_view key;
    if (!scanner.string(key) || !scanner.take(':')) return false;
    if (!once(key, "processId", request.processId, scanner) && !once(key, "writeId", request.writeId, scanner) &&
        !once(key, "chunk", request.chunk, scanner))
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
  if (std::max({request.id.size(), request.processId.size(), request.writeId.size()}) > kUsualIdBytes) return false;
  return request.id.data() && method.data() && request.processId.data() && request.chunk.data() &&
         Scanner::isPlain(request.processId) && Scanner::isPlain(request.writeId) &&
         (request.writeId.data() == nullptr || !request.writeId.empty());
}

size_t decodedLength(std::string_view base64) {
  const size_t length = base64.size();
  if (length < 4) return 0;
  return length / 4 * 3 - static_cast<size_t>((base64[length - 1] == '=') + (base64[length - 2] == '='));
}

bool writeRequestMembers(napi_env env, const WriteRequest& request, napi_value members[4]) {
  const auto text = [env](std::string_view from, napi_value* made) {
    return napi_create_string_latin1(env, from.data(), from.size(), made) == napi_ok;
  };
  const std::string_view chunk = request.chunk;
  const size_t length = decodedLength(chunk);
  void* memory;
  if (napi_create_buffer(env, length, &memory, &members[3]) != napi_ok) return false;
  if (base64Decode(reinterpret_cast<const uint8_t*>(chunk.data()), chunk.size(), static_cast<uint8_t*>(memory)) !=
      static_cast<ptrdiff_t>(length))
    return false;
  const bool made = request.id[0] == '"' ? text(request.id.substr(1, request.id.size() - 2), &members[0])
                                         : napi_create_double(env, strtod(std::string(request.id).c_str(), nullptr),
                                                              &members[0]) == napi_ok;
  if (!made || !text(request.processId, &members[1])) return false;
  return request.writeId.data() ? text(request.writeId, &members[2]) : napi_get_undefined(env, &members[2]) == napi_ok;
}

}  // namespace procwire
