// The head of a WebSocket frame, as far as it has come.
#ifndef PROCWIRE_FRAME_HEAD_H
#define PROCWIRE_FRAME_HEAD_H

#include <cstddef>
#include <cstdint>

namespace procwire {

// The longest there is.
constexpr size_t kMostHeadBytes = 14;

struct FrameHead {
  size_t bytes = 0;  // its own length; 0: not whole yet
  uint64_t payloadBytes = 0;
  uint32_t key = 0;
  uint8_t opcode = 0;
  bool fin = false;
  bool reserved = false;
  bool masked = false;

  FrameHead(const char* data, size_t length) {
    const uint8_t* at = reinterpret_cast<const uint8_t*>(data);
    if (length < 2) return;
    fin = at[0] & 0x80;
    reserved = at[0] & 0x70;
    opcode = at[0] & 0x0f;
    masked = at[1] & 0x80;
    payloadBytes = at[1] & 0x7f;
    const size_t lengthBytes = payloadBytes == 126 ? 2 : payloadBytes == 127 ? 8 : 0;
    const size_t whole = 2 + lengthBytes + (masked ? 4 : 0);
    if (length < whole) return;
    bytes = whole;
    at += 2;
    if (lengthBytes > 0) payloadBytes = 0;
    for (size_t digit = 0; digit < lengthBytes; digit++) payloadBytes = payloadBytes << 8 | *at++;
    for (size_t digit = 0; masked && digit < 4; digit++) key = key << 8 | *at++;
  }
};

}  // namespace procwire

#endif
