#include "net/incoming-block.h"

#include <string.h>

#include "net/byte-codec.h"

namespace procwire {

bool IncomingBlock::begin(napi_env env, const FrameHeader& header, const char* first, size_t firstBytes) {
  HandleScope scope(env);
  const size_t bytes = static_cast<size_t>(header.payloadBytes);
  void* memory = nullptr;
  napi_value buffer;
  if (!NAPI_OK(napi_create_buffer(env, bytes, &memory, &buffer))) return false;
  buffer_ = ValueRef(env, buffer);
  data_ = static_cast<char*>(memory);
  totalBytes_ = bytes;
  receivedBytes_ = firstBytes;
  key_ = header.key;
  memcpy(data_, first, firstBytes);
  return true;
}

napi_value IncomingBlock::take() {
  if (key_ != 0) unmask(reinterpret_cast<uint8_t*>(data_), totalBytes_, key_);
  const napi_value buffer = buffer_.get();
  reset();
  return buffer;
}

void IncomingBlock::reset() {
  buffer_.reset();
  data_ = nullptr;
  totalBytes_ = receivedBytes_ = 0;
}

}  // namespace procwire
