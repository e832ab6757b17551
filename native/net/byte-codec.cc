// Each function has a portable implementation. On x86-64 with AVX2, a second one processes most of the input in 32-byte
// registers and leaves the rest to the portable one.
#include "net/byte-codec.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define HAVE_AVX2_CODE 1
#define AVX2 __attribute__((target("avx2")))
#endif

namespace procwire {
namespace {

constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kInvalid = 0xff;

struct DecodeTable {
  uint8_t values[256];
  constexpr DecodeTable() : values() {
    for (int at = 0; at < 256; at++) values[at] = kInvalid;
    for (int at = 0; at < 64; at++) values[static_cast<uint8_t>(kAlphabet[at])] = static_cast<uint8_t>(at);
  }
};
constexpr DecodeTable kDecode;

bool wideDisabled = false;

#if HAVE_AVX2_CODE

// Encodes 24 bytes to 32 characters per iteration. Each iteration reads 28 bytes.
AVX2 size_t encodeWide(const uint8_t* from, size_t length, uint8_t* to) {
  // Spreads each 3 bytes abc to the 32-bit group bacb, so that shifts within 16-bit halves reach all four sextets.
  const __m256i spread = _mm256_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10, 1, 0, 2, 1, 4, 3, 5, 4, 7,
                                          6, 8, 7, 10, 9, 11, 10);
  // Offsets from sextet to character: 26..51, then 52..61 one by one, 62, 63, then 0..25.
  const __m128i half = _mm_setr_epi8('a' - 26, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
                                     '0' - 52, '0' - 52, '0' - 52, '+' - 62, '/' - 63, 'A', 0, 0);
  const __m256i offsets = _mm256_broadcastsi128_si256(half);
  size_t done = 0;
  for (; length - done >= 28; done += 24, to += 32) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done));
    const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done + 12));
    const __m256i groups = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), spread);
    const __m256i upper =
        _mm256_mulhi_epu16(_mm256_and_si256(groups, _mm256_set1_epi32(0x0fc0fc00)), _mm256_set1_epi32(0x04000040));
    const __m256i lower =
        _mm256_mullo_epi16(_mm256_and_si256(groups, _mm256_set1_epi32(0x003f03f0)), _mm256_set1_epi32(0x01000010));
    const __m256i sextets = _mm256_or_si256(upper, lower);
    const __m256i upperCase = _mm256_cmpgt_epi8(_mm256_set1_epi8(26), sextets);
    const __m256i range = _mm256_or_si256(_mm256_subs_epu8(sextets, _mm256_set1_epi8(51)),
                                          _mm256_and_si256(upperCase, _mm256_set1_epi8(13)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_add_epi8(sextets, _mm256_shuffle_epi8(offsets, range)));
  }
  return done;
}

AVX2 inline __m256i between(__m256i text, char first, char last) {
  return _mm256_and_si256(_mm256_cmpgt_epi8(text, _mm256_set1_epi8(static_cast<char>(first - 1))),
                          _mm256_cmpgt_epi8(_mm256_set1_epi8(static_cast<char>(last + 1)), text));
}

// Decodes 32 characters to 24 bytes per iteration. Each iteration writes 32 bytes, so it stops before the output space
// ends. Stops at the first character outside of the alphabet, which the portable code validates.
AVX2 size_t decodeWide(const uint8_t* from, size_t length, uint8_t* to) {
  const __m256i gather = _mm256_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1, 2, 1, 0, 6, 5, 4, 10,
                                          9, 8, 14, 13, 12, -1, -1, -1, -1);
  size_t done = 0;
  for (; length - done >= 48; done += 32, to += 24) {
    const __m256i text = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + done));
    const __m256i upper = between(text, 'A', 'Z');
    const __m256i lower = between(text, 'a', 'z');
    const __m256i digit = between(text, '0', '9');
    const __m256i plus = _mm256_cmpeq_epi8(text, _mm256_set1_epi8('+'));
    const __m256i slash = _mm256_cmpeq_epi8(text, _mm256_set1_epi8('/'));
    const __m256i valid =
        _mm256_or_si256(_mm256_or_si256(_mm256_or_si256(upper, lower), _mm256_or_si256(digit, plus)), slash);
    if (_mm256_movemask_epi8(valid) != -1) break;
    __m256i offset = _mm256_and_si256(upper, _mm256_set1_epi8(-'A'));
    offset = _mm256_or_si256(offset, _mm256_and_si256(lower, _mm256_set1_epi8(26 - 'a')));
    offset = _mm256_or_si256(offset, _mm256_and_si256(digit, _mm256_set1_epi8(52 - '0')));
    offset = _mm256_or_si256(offset, _mm256_and_si256(plus, _mm256_set1_epi8(62 - '+')));
    offset = _mm256_or_si256(offset, _mm256_and_si256(slash, _mm256_set1_epi8(63 - '/')));
    const __m256i sextets = _mm256_add_epi8(text, offset);
    // Merges pairs of sextets to 12 bits, pairs of those to 24, then orders the three bytes of each group.
    const __m256i twelve = _mm256_maddubs_epi16(sextets, _mm256_set1_epi32(0x01400140));
    const __m256i packed = _mm256_shuffle_epi8(_mm256_madd_epi16(twelve, _mm256_set1_epi32(0x00011000)), gather);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 12), _mm256_extracti128_si256(packed, 1));
  }
  return done;
}

AVX2 size_t unmaskWide(uint8_t* bytes, size_t length, uint32_t key) {
  const __m256i wide = _mm256_set1_epi32(static_cast<int>(key));
  size_t done = 0;
  for (; length - done >= 32; done += 32) {
    __m256i* at = reinterpret_cast<__m256i*>(bytes + done);
    _mm256_storeu_si256(at, _mm256_xor_si256(_mm256_loadu_si256(at), wide));
  }
  return done;
}

#endif

#if HAVE_AVX2_CODE
// Queries the processor directly. `__builtin_cpu_supports` needs a libgcc symbol that the toolchain of the prebuilt
// packages lacks.
bool hasAvx2() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
  // The kernel must save the wide registers too: bits 1 (XMM) and 2 (YMM).
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 6) != 6) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}

bool usesWideInstructions() {
  static const bool have = hasAvx2();
  return have && !wideDisabled;
}
#endif

}  // namespace

void disableWideInstructions(bool disabled) { wideDisabled = disabled; }

size_t base64DecodedLength(std::string_view text) {
  const size_t length = text.size();
  if (length < 4) return 0;
  return length / 4 * 3 - static_cast<size_t>((text[length - 1] == '=') + (text[length - 2] == '='));
}

size_t base64Encode(const uint8_t* from, size_t length, uint8_t* to) {
  uint8_t* const start = to;
  size_t at = 0;
#if HAVE_AVX2_CODE
  if (usesWideInstructions()) {
    at = encodeWide(from, length, to);
    to += at / 3 * 4;
  }
#endif
  for (; at + 3 <= length; at += 3) {
    const uint32_t group =
        static_cast<uint32_t>(from[at]) << 16 | static_cast<uint32_t>(from[at + 1]) << 8 | from[at + 2];
    *to++ = static_cast<uint8_t>(kAlphabet[group >> 18]);
    *to++ = static_cast<uint8_t>(kAlphabet[group >> 12 & 63]);
    *to++ = static_cast<uint8_t>(kAlphabet[group >> 6 & 63]);
    *to++ = static_cast<uint8_t>(kAlphabet[group & 63]);
  }
  if (at < length) {
    const bool two = length - at == 2;
    const uint32_t group = static_cast<uint32_t>(from[at]) << 16 | (two ? static_cast<uint32_t>(from[at + 1]) << 8 : 0);
    *to++ = static_cast<uint8_t>(kAlphabet[group >> 18]);
    *to++ = static_cast<uint8_t>(kAlphabet[group >> 12 & 63]);
    *to++ = two ? static_cast<uint8_t>(kAlphabet[group >> 6 & 63]) : '=';
    *to++ = '=';
  }
  return static_cast<size_t>(to - start);
}

ptrdiff_t base64Decode(const uint8_t* from, size_t length, uint8_t* to) {
  if (length % 4 != 0) return -1;
  uint8_t* const start = to;
  size_t at = 0;
#if HAVE_AVX2_CODE
  if (usesWideInstructions()) {
    at = decodeWide(from, length, to);
    to += at / 4 * 3;
  }
#endif
  const uint8_t* const values = kDecode.values;
  for (; at < length; at += 4) {
    const uint8_t a = values[from[at]];
    const uint8_t b = values[from[at + 1]];
    const uint8_t c = values[from[at + 2]];
    const uint8_t d = values[from[at + 3]];
    if ((a | b | c | d) < 64) {
      const uint32_t group =
          static_cast<uint32_t>(a) << 18 | static_cast<uint32_t>(b) << 12 | static_cast<uint32_t>(c) << 6 | d;
      *to++ = static_cast<uint8_t>(group >> 16);
      *to++ = static_cast<uint8_t>(group >> 8);
      *to++ = static_cast<uint8_t>(group);
      continue;
    }
    // Only the last group may be padded, and its unused bits must be zero.
    if (at + 4 != length || from[at + 3] != '=' || a > 63 || b > 63) return -1;
    *to++ = static_cast<uint8_t>(a << 2 | b >> 4);
    if (from[at + 2] == '=') {
      if (b & 15) return -1;
    } else {
      if (c > 63 || (c & 3)) return -1;
      *to++ = static_cast<uint8_t>(b << 4 | c >> 2);
    }
  }
  return to - start;
}

// Returns the position of the first character outside of the alphabet, or `length`.
static size_t findInvalidBase64(const uint8_t* text, size_t length) {
  size_t at = 0;
  while (at < length && kDecode.values[text[at]] != kInvalid) at++;
  return at;
}

std::string base64Problem(const uint8_t* text, size_t length) {
  size_t body = length;
  for (int padding = 0; padding < 2 && body > 0 && text[body - 1] == '='; padding++) body--;
  const size_t invalid = findInvalidBase64(text, body);
  if (invalid < body) {
    uint32_t code = text[invalid];
    if (code >= 0xf0) {
      const uint32_t point = (code & 7u) << 18 | (text[invalid + 1] & 63u) << 12 | (text[invalid + 2] & 63u) << 6;
      code = 0xd800 + ((point - 0x10000) >> 10);
    } else if (code >= 0xe0) {
      code = (code & 15u) << 12 | (text[invalid + 1] & 63u) << 6 | (text[invalid + 2] & 63u);
    } else if (code >= 0xc0) {
      code = (code & 31u) << 6 | (text[invalid + 1] & 63u);
    }
    return "Invalid symbol " + std::to_string(code) + ", offset " + std::to_string(invalid) + ".";
  }
  if (length % 4 != 0 || body % 4 == 1) return "Invalid padding";
  uint8_t last[3];
  if (body == length || base64Decode(text + length - 4, 4, last) >= 0) return "";
  return "Invalid last symbol " + std::to_string(text[body - 1]) + ", offset " + std::to_string(body - 1) + ".";
}

void unmask(uint8_t* bytes, size_t length, uint32_t bigEndianKey) {
  if (bigEndianKey == 0) return;
  const uint8_t inOrder[4] = {static_cast<uint8_t>(bigEndianKey >> 24), static_cast<uint8_t>(bigEndianKey >> 16),
                              static_cast<uint8_t>(bigEndianKey >> 8), static_cast<uint8_t>(bigEndianKey)};
  uint32_t key;
  memcpy(&key, inOrder, 4);
  size_t at = 0;
#if HAVE_AVX2_CODE
  // A multiple of four bytes is processed, so the key keeps its alignment.
  if (usesWideInstructions()) at = unmaskWide(bytes, length, key);
#endif
  for (; at + 4 <= length; at += 4) {
    uint32_t word;
    memcpy(&word, bytes + at, 4);
    word ^= key;
    memcpy(bytes + at, &word, 4);
  }
  for (; at < length; at++) bytes[at] ^= inOrder[at % 4];
}

bool isAscii(const char* text, size_t length) {
  size_t at = 0;
  uint64_t word;
  uint64_t all = 0;
  for (; at + sizeof word <= length; at += sizeof word) {
    memcpy(&word, text + at, sizeof word);
    all |= word;
  }
  for (; at < length; at++) all |= static_cast<uint8_t>(text[at]);
  return (all & 0x8080808080808080u) == 0;
}

}  // namespace procwire
