#include "net/message-scan.h"

#include <string.h>

#include <algorithm>
#include <deque>
#include <string_view>
#include <utility>

#include "net/byte-codec.h"
#include "net/json-strings.h"

namespace procwire {
namespace {

// Strings above this size have their escapes resolved here; JavaScript resolves shorter ones.
constexpr size_t kMaxRawBytes = 64 * 1024;
// Minimum size of base64 that is decoded here.
constexpr size_t kMinBase64Bytes = 4 * 1024;
// JavaScript needs a key as a whole.
constexpr size_t kMaxKeyBytes = 1024 * 1024;
constexpr size_t kMaxNumberBytes = 4 * 1024;

bool isBase64Member(std::string_view key) { return key == "chunk" || key == "dataBase64" || key == "bodyBase64"; }

// Nonzero if a byte of the word equals `byte`.
uint64_t matches(uint64_t word, uint8_t byte) {
  const uint64_t difference = word ^ (kOnes * byte);
  return (difference - kOnes) & ~difference & kHighBits;
}

bool isSpace(uint8_t letter) { return letter == ' ' || letter == '\n' || letter == '\r' || letter == '\t'; }

class MessageScanner {
 public:
  MessageScanner(uint8_t* text, size_t length, const ScanLimits& limits)
      : begin_(text), at_(text), end_(text + length), limits_(limits) {}

  ScanResult run() {
    result_.isUtf8 = isUtf8(begin_, end_);
    if (result_.isUtf8) scan();
    if (!result_.problem.empty()) result_.tokens.clear();
    return std::move(result_);
  }

 private:
  struct Container {
    bool isObject;
    // Index of its first key in `keys_`.
    size_t firstKey;
  };
  struct Key {
    std::string_view name;
    uint32_t position;
  };
  struct StringToken {
    uint8_t* from = nullptr;
    uint8_t* to = nullptr;
    bool isAscii = true;
    bool isRaw = false;
  };

  uint32_t position() const { return static_cast<uint32_t>(at_ - begin_); }

  bool fail(const std::string& text, uint32_t column) {
    if (result_.problem.empty()) result_.problem = text + " at line 1 column " + std::to_string(column);
    return false;
  }

  bool unexpected() { return fail(at_ >= end_ ? "EOF while parsing a value" : "unexpected character", position()); }

  void add(TokenKind kind, uint32_t from = 0, uint32_t to = 0) {
    result_.tokens.insert(result_.tokens.end(), {static_cast<uint32_t>(kind), from, to});
  }

  void addRange(TokenKind kind, const uint8_t* from, const uint8_t* to) {
    add(kind, static_cast<uint32_t>(from - begin_), static_cast<uint32_t>(to - begin_));
  }

  void skipSpace() {
    // Compares eight at a time, because a message may consist of blanks.
    uint64_t word;
    while (end_ - at_ >= 8 && (memcpy(&word, at_, 8), word == kOnes * ' ')) at_ += 8;
    while (at_ < end_ && isSpace(*at_)) at_++;
  }

  bool take(uint8_t letter) {
    if (at_ >= end_ || *at_ != letter) return false;
    at_++;
    return true;
  }

  // One value or the end of a container per iteration; no recursion, because the stack is small.
  void scan() {
    skipSpace();
    if (!value()) return;
    while (!stack_.empty()) {
      skipSpace();
      const Container top = stack_.back();
      if (take(top.isObject ? '}' : ']')) {
        if (!close(top)) return;
        continue;
      }
      if (!isFirst_ && !take(',')) {
        unexpected();
        return;
      }
      isFirst_ = false;
      skipSpace();
      if (top.isObject && !key()) return;
      if (!value()) return;
    }
    skipSpace();
    if (at_ < end_) unexpected();
  }

  bool close(const Container& container) {
    if (container.isObject && !checkKeys(container.firstKey)) return false;
    add(container.isObject ? TokenKind::kObjectEnd : TokenKind::kArrayEnd);
    stack_.pop_back();
    isFirst_ = false;
    return true;
  }

  // Sorts instead of hashing, so that no keys are expensive.
  bool checkKeys(size_t first) {
    const auto from = keys_.begin() + static_cast<ptrdiff_t>(first);
    std::sort(from, keys_.end(), [](const Key& a, const Key& b) {
      const int order = a.name.compare(b.name);
      return order != 0 ? order < 0 : a.position < b.position;
    });
    const Key* duplicate = nullptr;
    for (size_t index = first + 1; index < keys_.size(); index++) {
      const Key& found = keys_[index];
      if (found.name == keys_[index - 1].name && (!duplicate || found.position < duplicate->position))
        duplicate = &found;
    }
    if (duplicate) return fail("duplicate JSON object key `" + std::string(duplicate->name) + "`", duplicate->position);
    keys_.resize(first);
    return true;
  }

  bool key() {
    const uint32_t position = this->position();
    StringToken found;
    if (at_ >= end_ || *at_ != '"' || !string(found)) return unexpected();
    const size_t length = static_cast<size_t>(found.to - found.from);
    if (length > kMaxKeyBytes)
      return fail("JSON object key exceeds the limit of " + std::to_string(kMaxKeyBytes) + " bytes", position);
    std::string_view name(reinterpret_cast<const char*>(found.from), length);
    if (found.isRaw) {
      std::string resolved(length, 0);
      bool hasLoneSurrogate = false;
      uint8_t* const to = reinterpret_cast<uint8_t*>(&resolved[0]);
      resolved.resize(static_cast<size_t>(resolveEscapes(found.from + 1, found.to - 1, to, hasLoneSurrogate) - to));
      resolvedKeys_.push_back(std::move(resolved));
      name = resolvedKeys_.back();
    }
    keys_.push_back({name, position});
    if (stack_.size() == 1) isParams_ = name == "params";
    isBase64_ = stack_.size() == 2 && isParams_ && isBase64Member(name);
    addRange(found.isRaw     ? TokenKind::kRawKey
             : found.isAscii ? TokenKind::kAsciiKey
                             : TokenKind::kUtf8Key,
             found.from, found.to);
    skipSpace();
    if (!take(':')) return unexpected();
    skipSpace();
    return true;
  }

  bool value() {
    if (at_ >= end_) return unexpected();
    if (++values_ > limits_.values)
      return fail("JSON-RPC message exceeds the limit of " + std::to_string(limits_.values) + " JSON values",
                  position());
    switch (*at_) {
      case '{': return open(true);
      case '[': return open(false);
      case '"': return stringValue();
      case 't': return literal("true", TokenKind::kTrue);
      case 'f': return literal("false", TokenKind::kFalse);
      case 'n': return literal("null", TokenKind::kNull);
      default: return number();
    }
  }

  bool open(bool isObject) {
    at_++;
    if (stack_.size() >= limits_.depth) return fail("recursion limit exceeded", position());
    stack_.push_back({isObject, keys_.size()});
    add(isObject ? TokenKind::kObject : TokenKind::kArray);
    isFirst_ = true;
    return true;
  }

  bool literal(std::string_view text, TokenKind kind) {
    if (static_cast<size_t>(end_ - at_) < text.size() || memcmp(at_, text.data(), text.size()) != 0)
      return unexpected();
    at_ += text.size();
    add(kind);
    return true;
  }

  bool digits() {
    const uint8_t* const from = at_;
    while (at_ < end_ && isDigit(*at_)) at_++;
    return at_ > from;
  }

  bool number() {
    const uint8_t* const from = at_;
    take('-');
    if (!take('0') && !digits()) return unexpected();
    if (take('.') && !digits()) return unexpected();
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (!digits()) return unexpected();
    }
    if (static_cast<size_t>(at_ - from) > kMaxNumberBytes)
      return fail("JSON number exceeds the limit of " + std::to_string(kMaxNumberBytes) + " characters", position());
    addRange(TokenKind::kNumber, from, at_);
    return true;
  }

  bool stringValue() {
    const bool isBase64 = isBase64_;
    isBase64_ = false;
    StringToken found;
    if (!string(found)) return unexpected();
    const size_t length = static_cast<size_t>(found.to - found.from);
    if (isBase64 && !found.isRaw && length >= kMinBase64Bytes) {
      decode(found.from, length);
      return true;
    }
    addRange(found.isRaw     ? TokenKind::kRaw
             : found.isAscii ? TokenKind::kAscii
                             : TokenKind::kUtf8,
             found.from, found.to);
    return true;
  }

  void decode(uint8_t* text, size_t length) {
    std::string problem = base64Problem(text, length);
    if (problem.empty()) {
      // The decoded bytes are shorter, and each group is read before it is overwritten.
      const ptrdiff_t bytes = base64Decode(text, length, text);
      addRange(TokenKind::kBytes, text, text + bytes);
      return;
    }
    add(TokenKind::kInvalidBase64, static_cast<uint32_t>(result_.texts.size()));
    result_.texts.push_back(std::move(problem));
  }

  // Reads a string from its quote on. Returns false at an invalid character.
  bool string(StringToken& found) {
    uint8_t* const from = ++at_;
    bool hasEscapes = false;
    uint64_t seen = 0;
    for (;;) {
      uint64_t word;
      while (end_ - at_ >= 8) {
        memcpy(&word, at_, 8);
        // Control characters: bytes below 0x20.
        const uint64_t control = (word - kOnes * 0x20) & ~word & kHighBits;
        if (control | matches(word, '"') | matches(word, '\\')) break;
        seen |= word;
        at_ += 8;
      }
      if (at_ >= end_) return false;
      const uint8_t letter = *at_;
      if (letter == '"') break;
      if (letter < 0x20) return false;
      seen |= letter;
      if (letter != '\\') {
        at_++;
        continue;
      }
      hasEscapes = true;
      if (!escape()) return false;
    }
    uint8_t* const to = at_++;
    found = {from, to, (seen & kHighBits) == 0, false};
    if (!hasEscapes) return true;
    if (static_cast<size_t>(to - from) <= kMaxRawBytes) {
      found = {from - 1, to + 1, found.isAscii, true};
      return true;
    }
    bool hasLoneSurrogate = false;
    found.to = resolveEscapes(from, to, from, hasLoneSurrogate);
    found.isAscii = false;
    return !hasLoneSurrogate || fail("lone surrogate in hex escape", position());
  }

  bool escape() {
    if (end_ - at_ < 2) return false;
    if (at_[1] == 'u') {
      if (hexUnit(at_ + 2, end_) < 0) return false;
      at_ += 6;
      return true;
    }
    if (!strchr("\"\\/bfnrt", at_[1]) || at_[1] == 0) return false;
    at_ += 2;
    return true;
  }

  uint8_t* begin_;
  uint8_t* at_;
  uint8_t* end_;
  ScanLimits limits_;
  ScanResult result_;
  std::vector<Container> stack_;
  std::vector<Key> keys_;
  // Keys with escapes; a deque, because `keys_` refers to them.
  std::deque<std::string> resolvedKeys_;
  uint32_t values_ = 0;
  bool isFirst_ = false;
  // Whether the member of the message that is being read is `params`, and the next value is its base64.
  bool isParams_ = false;
  bool isBase64_ = false;
};

}  // namespace

ScanResult scanMessage(uint8_t* text, size_t length, const ScanLimits& limits) {
  return MessageScanner(text, length, limits).run();
}

}  // namespace procwire
