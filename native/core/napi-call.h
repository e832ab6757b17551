// Arguments and results of one call from JavaScript, converted to plain values. The callers in `src/native/` validate
// arguments, so an invalid argument is a bug and yields an empty value.
#ifndef PROCWIRE_CORE_NAPI_CALL_H
#define PROCWIRE_CORE_NAPI_CALL_H

#include <node_api.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/loop.h"
#include "core/napi.h"

namespace procwire {

constexpr size_t kMaxArguments = 6;

struct Bytes {
  uint8_t* data = nullptr;
  size_t length = 0;
};

// One value from JavaScript: an argument, or a property of an options object.
struct Argument {
  napi_env env;
  napi_value value;

  double number() const { return optionalNumber().value_or(0); }

  // The number, or nothing for null and undefined.
  std::optional<double> optionalNumber() const {
    double result = 0;
    return NAPI_OK(napi_get_value_double(env, value, &result)) ? std::optional<double>(result) : std::nullopt;
  }

  bool boolean() const {
    bool result = false;
    return NAPI_OK(napi_get_value_bool(env, value, &result)) && result;
  }

  bool isString() const {
    napi_valuetype type;
    return NAPI_OK(napi_typeof(env, value, &type)) && type == napi_string;
  }

  std::string string() const {
    const size_t length = stringLength();
    std::string result(length, 0);
    if (length > 0) copyString(&result[0], length);
    return result;
  }

  // Length of the string in UTF-8 bytes.
  size_t stringLength() const {
    size_t length = 0;
    return NAPI_OK(napi_get_value_string_utf8(env, value, nullptr, 0, &length)) ? length : 0;
  }

  // Copies `length` bytes and a terminating zero byte.
  void copyString(char* to, size_t length) const {
    if (!NAPI_OK(napi_get_value_string_utf8(env, value, to, length + 1, &length))) to[0] = 0;
  }

  // Splits a string of parts, each terminated by a zero byte.
  std::vector<std::string> strings() const {
    const std::string block = string();
    std::vector<std::string> result;
    for (size_t from = 0; from < block.size();) {
      size_t end = block.find('\0', from);
      if (end == std::string::npos) end = block.size();
      result.emplace_back(block, from, end - from);
      from = end + 1;
    }
    return result;
  }

  Bytes bytes() const {
    Bytes result;
    void* data = nullptr;
    if (!typedArray(napi_uint8_array, data, result.length)) return {};
    result.data = static_cast<uint8_t*>(data);
    return result;
  }

  // Copies an Int32Array.
  std::vector<int> integers() const { return elements<int32_t>(napi_int32_array); }
  // Copies a Float64Array.
  std::vector<double> numbers() const { return elements<double>(napi_float64_array); }

  // The property of an options object.
  Argument property(const char* name) const {
    napi_value result = nullptr;
    NAPI_CHECK(napi_get_property(env, value, propertyKey(env, name), &result));
    return {env, result};
  }

  // A strong reference to the value, such as a callback.
  ValueRef ref() const { return ValueRef(env, value); }

  void* external() const {
    void* result = nullptr;
    return NAPI_OK(napi_get_value_external(env, value, &result)) ? result : nullptr;
  }

 private:
  bool typedArray(napi_typedarray_type expected, void*& data, size_t& length) const {
    napi_typedarray_type type;
    return NAPI_OK(napi_get_typedarray_info(env, value, &type, &length, &data, nullptr, nullptr)) && type == expected;
  }

  template <class Element>
  std::vector<Element> elements(napi_typedarray_type expected) const {
    size_t length = 0;
    void* data = nullptr;
    if (!typedArray(expected, data, length)) return {};
    const Element* first = static_cast<const Element*>(data);
    return std::vector<Element>(first, first + length);
  }
};

struct Call {
  napi_env env;
  size_t count = kMaxArguments;
  napi_value argv[kMaxArguments] = {};

  Call(napi_env env, napi_callback_info info) : env(env) {
    NAPI_CHECK(napi_get_cb_info(env, info, &count, argv, nullptr, nullptr));
  }

  Argument operator[](size_t index) const { return {env, argv[index]}; }

  Loop* loop() const {
    void* loop = nullptr;
    NAPI_CHECK(napi_get_instance_data(env, &loop));
    return static_cast<Loop*>(loop);
  }

  // Returns the object behind a handle, or null if the value is not a handle.
  template <class Kind>
  Kind* object(size_t index = 0) const {
    return static_cast<Kind*>(static_cast<LoopObject*>((*this)[index].external()));
  }

  template <class Value>
  napi_value toValue(Value value) const {
    return procwire::toValue(env, value);
  }

  napi_value toValue(const std::vector<pid_t>& pids) const {
    ArrayBuilder array(env);
    for (const pid_t pid : pids) array.push(pid);
    return array.get();
  }
};

// Calls a method without arguments on the child, socket or listener in argument 0.
template <class Kind, void (Kind::*method)()>
napi_value invoke(napi_env env, napi_callback_info info) {
  if (Kind* object = Call(env, info).object<Kind>()) (object->*method)();
  return nullptr;
}

// Returns a number of the child or socket in argument 0, or 0 if it is not a handle.
template <class Kind, auto method>
napi_value getNumber(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Kind* object = call.object<Kind>();
  return call.toValue(object ? static_cast<double>((object->*method)()) : 0.0);
}

// Exports of one directory of the addon.
using Bindings = std::vector<napi_property_descriptor>;

inline napi_property_descriptor binding(const char* name, napi_callback function) {
  return {name, nullptr, function, nullptr, nullptr, nullptr, napi_enumerable, nullptr};
}

inline napi_property_descriptor binding(const char* name, napi_value value) {
  return {name, nullptr, nullptr, nullptr, nullptr, value, napi_enumerable, nullptr};
}

// Creates an array of names, indexed by the numbers that they name.
template <size_t length>
napi_value nameList(napi_env env, const char* const (&list)[length]) {
  ArrayBuilder array(env);
  for (const char* name : list) array.push(name);
  return array.get();
}

}  // namespace procwire

#endif
