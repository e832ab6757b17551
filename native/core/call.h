// One call from JavaScript: its arguments as plain values, and answers made of plain values. Arguments are checked by
// the callers in `src/native/`, so a wrong one here is a bug and answers undefined.
#ifndef PROCWIRE_CALL_H
#define PROCWIRE_CALL_H

#include <node_api.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/loop.h"

namespace procwire {

constexpr size_t kMaxArguments = 17;

struct Call {
  napi_env env;
  size_t count = kMaxArguments;
  napi_value argv[kMaxArguments];

  Call(napi_env env, napi_callback_info info) : env(env) {
    napi_get_cb_info(env, info, &count, argv, nullptr, nullptr);
  }

  double number(size_t at) const {
    double value = 0;
    napi_get_value_double(env, argv[at], &value);
    return value;
  }

  bool boolean(size_t at) const {
    bool value = false;
    napi_get_value_bool(env, argv[at], &value);
    return value;
  }

  bool isText(size_t at) const {
    napi_valuetype type;
    return at < count && napi_typeof(env, argv[at], &type) == napi_ok && type == napi_string;
  }

  std::string text(size_t at) const {
    size_t length = 0;
    if (napi_get_value_string_utf8(env, argv[at], nullptr, 0, &length) != napi_ok) return {};
    std::string value(length, 0);
    napi_get_value_string_utf8(env, argv[at], &value[0], length + 1, &length);
    return value;
  }

  // Strings, each ended by a zero byte.
  std::vector<std::string> texts(size_t at) const {
    const std::string block = text(at);
    std::vector<std::string> found;
    for (size_t from = 0; from < block.size();) {
      size_t end = block.find('\0', from);
      if (end == std::string::npos) end = block.size();
      found.emplace_back(block, from, end - from);
      from = end + 1;
    }
    return found;
  }

  struct Bytes {
    uint8_t* data = nullptr;
    size_t length = 0;
  };

  Bytes bytes(size_t at) const {
    Bytes found;
    napi_typedarray_type type;
    void* data = nullptr;
    if (napi_get_typedarray_info(env, argv[at], &type, &found.length, &data, nullptr, nullptr) != napi_ok ||
        type != napi_uint8_array)
      return {};
    found.data = static_cast<uint8_t*>(data);
    return found;
  }

  // An Int32Array.
  std::vector<int> integers(size_t at) const { return elements<int32_t>(at, napi_int32_array); }
  // A Float64Array.
  std::vector<double> numbers(size_t at) const { return elements<double>(at, napi_float64_array); }

  template <class Element>
  std::vector<Element> elements(size_t at, napi_typedarray_type wanted) const {
    napi_typedarray_type type;
    size_t length = 0;
    void* data = nullptr;
    if (napi_get_typedarray_info(env, argv[at], &type, &length, &data, nullptr, nullptr) != napi_ok || type != wanted)
      return {};
    const Element* first = static_cast<const Element*>(data);
    return std::vector<Element>(first, first + length);
  }

  Loop* loop() const {
    void* loop = nullptr;
    napi_get_instance_data(env, &loop);
    return static_cast<Loop*>(loop);
  }

  // The addon's own object behind a handle; null for a value that never was one.
  template <class Kind>
  Kind* object(size_t at = 0) const {
    return static_cast<Kind*>(static_cast<Resident*>(external(at)));
  }

  void* external(size_t at) const {
    void* found = nullptr;
    return at < count && napi_get_value_external(env, argv[at], &found) == napi_ok ? found : nullptr;
  }

  // How long a text is in UTF-8.
  size_t textLength(size_t at) const {
    size_t length = 0;
    napi_get_value_string_utf8(env, argv[at], nullptr, 0, &length);
    return length;
  }

  // Copies that many bytes, and a zero behind them.
  void copyText(size_t at, char* to, size_t length) const {
    napi_get_value_string_utf8(env, argv[at], to, length + 1, &length);
  }

  napi_value answer(double value) const {
    napi_value made;
    napi_create_double(env, value, &made);
    return made;
  }

  napi_value answer(bool value) const {
    napi_value made;
    napi_get_boolean(env, value, &made);
    return made;
  }

  napi_value answer(const std::vector<pid_t>& pids) const {
    napi_value made;
    napi_create_array_with_length(env, pids.size(), &made);
    for (size_t at = 0; at < pids.size(); at++)
      napi_set_element(env, made, static_cast<uint32_t>(at), answer(static_cast<double>(pids[at])));
    return made;
  }
};

// (child, socket or listener): does the one thing it is asked for
template <class Kind, void (Kind::*what)()>
napi_value ask(napi_env env, napi_callback_info info) {
  if (Kind* asked = Call(env, info).object<Kind>()) (asked->*what)();
  return nullptr;
}

// (child or socket): the number it has, 0 for a value that never was one
template <class Kind, auto what>
napi_value numberOf(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Kind* asked = call.object<Kind>();
  return call.answer(asked ? static_cast<double>((asked->*what)()) : 0.0);
}

// What a folder of the addon exports to JavaScript.
using Bindings = std::vector<napi_property_descriptor>;

inline napi_property_descriptor binding(const char* name, napi_callback function) {
  return {name, nullptr, function, nullptr, nullptr, nullptr, napi_enumerable, nullptr};
}

inline napi_property_descriptor binding(const char* name, napi_value value) {
  return {name, nullptr, nullptr, nullptr, nullptr, value, napi_enumerable, nullptr};
}

// A list of names: the place of each is the number it stands for.
template <size_t length>
napi_value names(napi_env env, const char* const (&list)[length]) {
  napi_value made;
  napi_create_array_with_length(env, length, &made);
  for (uint32_t at = 0; at < length; at++) {
    napi_value name;
    napi_create_string_utf8(env, list[at], NAPI_AUTO_LENGTH, &name);
    napi_set_element(env, made, at, name);
  }
  return made;
}

}  // namespace procwire

#endif
