#include "net/json-strings.h"

#include <string.h>

namespace procwire {
namespace {

// Returns the length of a valid UTF-8 sequence of several bytes, or 0.
size_t sequenceLength(const uint8_t* at, const uint8_t* end) {
  const uint8_t first = *at;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || static_cast<size_t>(end - at) < length) return 0;
  for (size_t index = 1; index < length; index++)
    if ((at[index] & 0xc0) != 0x80) return 0;
  // Overlong forms, surrogates and code points above U+10FFFF.
  if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xed && at[1] > 0x9f)) return 0;
  if ((first == 0xf0 && at[1] < 0x90) || (first == 0xf4 && at[1] > 0x8f)) return 0;
  return length;
}

int hexValue(uint8_t letter) {
  if (isDigit(letter)) return letter - '0';
  const uint8_t lower = letter | 0x20;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

uint8_t* appendUtf8(uint8_t* to, uint32_t code) {
  if (code < 0x80) {
    *to++ = static_cast<uint8_t>(code);
  } else if (code < 0x800) {
    *to++ = static_cast<uint8_t>(0xc0 | code >> 6);
    *to++ = static_cast<uint8_t>(0x80 | (code & 63));
  } else if (code < 0x10000) {
    *to++ = static_cast<uint8_t>(0xe0 | code >> 12);
    *to++ = static_cast<uint8_t>(0x80 | (code >> 6 & 63));
    *to++ = static_cast<uint8_t>(0x80 | (code & 63));
  } else {
    *to++ = static_cast<uint8_t>(0xf0 | code >> 18);
    *to++ = static_cast<uint8_t>(0x80 | (code >> 12 & 63));
    *to++ = static_cast<uint8_t>(0x80 | (code >> 6 & 63));
    *to++ = static_cast<uint8_t>(0x80 | (code & 63));
  }
  return to;
}

}  // namespace

bool isUtf8(const uint8_t* at, const uint8_t* end) {
  while (at < end) {
    uint64_t word;
    if (end - at >= 8 && (memcpy(&word, at, 8), (word & kHighBits) == 0)) {
      at += 8;
    } else if (*at < 0x80) {
      at++;
    } else {
      const size_t length = sequenceLength(at, end);
      if (length == 0) return false;
      at += length;
    }
  }
  return true;
}

int hexUnit(const uint8_t* at, const uint8_t* end) {
  if (end - at < 4) return -1;
  int unit = 0;
  for (int index = 0; index < 4; index++) {
    const int digit = hexValue(at[index]);
    if (digit < 0) return -1;
    unit = unit << 4 | digit;
  }
  return unit;
}

uint8_t* resolveEscapes(const uint8_t* from, const uint8_t* end, uint8_t* to, bool& hasLoneSurrogate) {
  while (from < end) {
    if (*from != '\\') {
      *to++ = *from++;
      continue;
    }
    const uint8_t letter = from[1];
    from += 2;
    switch (letter) {
      case 'b': *to++ = '\b'; continue;
      case 'f': *to++ = '\f'; continue;
      case 'n': *to++ = '\n'; continue;
      case 'r': *to++ = '\r'; continue;
      case 't': *to++ = '\t'; continue;
      case 'u': break;
      default: *to++ = letter; continue;
    }
    uint32_t code = static_cast<uint32_t>(hexUnit(from, end));
    from += 4;
    const bool isHigh = code >= 0xd800 && code < 0xdc00;
    const int low = isHigh && end - from >= 6 && from[0] == '\\' && from[1] == 'u' ? hexUnit(from + 2, end) : -1;
    if (low >= 0xdc00 && low < 0xe000) {
      code = 0x10000 + ((code - 0xd800) << 10) + static_cast<uint32_t>(low - 0xdc00);
      from += 6;
    } else if (code >= 0xd800 && code < 0xe000) {
      hasLoneSurrogate = true;
    }
    to = appendUtf8(to, code);
  }
  return to;
}

}  // namespace procwire
