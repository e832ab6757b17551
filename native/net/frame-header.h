// The header of a WebSocket frame, parsed from the bytes received so far.
#ifndef PROCWIRE_NET_FRAME_HEADER_H
#define PROCWIRE_NET_FRAME_HEADER_H

#include <cstddef>
#include <cstdint>

namespace procwire {

// Maximum header size by RFC 6455.
constexpr size_t kMaxHeaderBytes = 14;

struct FrameHeader {
  size_t bytes = 0;  // header length; 0 while the header is incomplete
  uint64_t payloadBytes = 0;
  uint32_t key = 0;
  uint8_t opcode = 0;
  bool fin = false;
  bool reserved = false;
  bool masked = false;

  FrameHeader(const char* data, size_t length) {
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
