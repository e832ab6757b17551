// Checked access to Node-API. All code of the addon calls Node-API through this header.
//
// NAPI_CHECK is for calls that fail only through a bug of the addon: it aborts with the failed call. NAPI_OK is for
// calls with an expected failure, such as the conversion of an argument or an allocation: the caller handles `false`.
// Both tolerate a pending exception and a terminating worker, in which no JavaScript runs anymore.
#ifndef PROCWIRE_CORE_NAPI_H
#define PROCWIRE_CORE_NAPI_H

#include <node_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#define NAPI_OK(call) ((call) == napi_ok)
#define NAPI_CHECK(call) ::procwire::checkNapi((call), #call)

namespace procwire {

// Returns whether the call succeeded.
inline bool checkNapi(napi_status status, const char* call) {
  if (status == napi_ok) return true;
  if (status != napi_pending_exception && status != napi_cannot_run_js && status != napi_closing)
    napi_fatal_error("procwire addon", NAPI_AUTO_LENGTH, call, NAPI_AUTO_LENGTH);
  return false;
}

// Frees all handles created in its scope. Every event of the loop that creates values opens one.
class HandleScope {
 public:
  explicit HandleScope(napi_env env) : env_(env) { NAPI_CHECK(napi_open_handle_scope(env, &scope_)); }
  HandleScope(const HandleScope&) = delete;
  HandleScope& operator=(const HandleScope&) = delete;
  ~HandleScope() { NAPI_CHECK(napi_close_handle_scope(env_, scope_)); }

 private:
  napi_env env_;
  napi_handle_scope scope_ = nullptr;
};

// A strong reference to a JavaScript value, such as a callback.
class ValueRef {
 public:
  ValueRef() = default;
  // Empty if the value is null, because a terminating worker could not read it.
  ValueRef(napi_env env, napi_value value) : env_(env) {
    if (value) NAPI_CHECK(napi_create_reference(env, value, 1, &ref_));
  }
  ValueRef(ValueRef&& other) noexcept : env_(other.env_), ref_(std::exchange(other.ref_, nullptr)) {}
  ValueRef& operator=(ValueRef&& other) noexcept {
    reset();
    env_ = other.env_;
    ref_ = std::exchange(other.ref_, nullptr);
    return *this;
  }
  // Does not delete the reference: the destructor may run on another thread. The environment deletes it at its end.
  ~ValueRef() = default;

  explicit operator bool() const { return ref_ != nullptr; }

  // Returns the value, or null if there is none.
  napi_value get() const {
    napi_value value = nullptr;
    if (ref_) NAPI_CHECK(napi_get_reference_value(env_, ref_, &value));
    return value;
  }

  void reset() {
    if (napi_ref ref = std::exchange(ref_, nullptr)) NAPI_CHECK(napi_delete_reference(env_, ref));
  }

 private:
  napi_env env_ = nullptr;
  napi_ref ref_ = nullptr;
};

// ---- creation of values. Each returns null if no JavaScript runs anymore.

inline napi_value toValue(napi_env env, double value) {
  napi_value result = nullptr;
  NAPI_CHECK(napi_create_double(env, value, &result));
  return result;
}

inline napi_value toValue(napi_env env, int value) {
  napi_value result = nullptr;
  NAPI_CHECK(napi_create_int32(env, value, &result));
  return result;
}

inline napi_value toValue(napi_env env, uint64_t value) { return toValue(env, static_cast<double>(value)); }

inline napi_value toValue(napi_env env, bool value) {
  napi_value result = nullptr;
  NAPI_CHECK(napi_get_boolean(env, value, &result));
  return result;
}

inline napi_value toValue(napi_env env, std::string_view text) {
  napi_value result = nullptr;
  NAPI_CHECK(napi_create_string_utf8(env, text.data(), text.size(), &result));
  return result;
}

inline napi_value toValue(napi_env env, const char* text) { return toValue(env, std::string_view(text)); }

// The value, or null if there is none.
template <class Value>
napi_value toValue(napi_env env, const std::optional<Value>& value) {
  if (value) return toValue(env, *value);
  napi_value result = nullptr;
  NAPI_CHECK(napi_get_null(env, &result));
  return result;
}

// Returns the number, or nothing if it is 0: a system call without an error, or an identifier of nothing.
template <class Number>
std::optional<Number> nonZero(Number number) {
  return number == 0 ? std::nullopt : std::optional<Number>(number);
}

// Returns the number, or nothing if it is negative: no descriptor, port or user.
template <class Number>
std::optional<Number> nonNegative(Number number) {
  return number < 0 ? std::nullopt : std::optional<Number>(number);
}

inline napi_value asciiToValue(napi_env env, std::string_view text) {
  napi_value result = nullptr;
  NAPI_CHECK(napi_create_string_latin1(env, text.data(), text.size(), &result));
  return result;
}

// Copies bytes into a Buffer. Returns false if the allocation fails.
inline bool copyToBuffer(napi_env env, const char* bytes, size_t length, napi_value& result) {
  return NAPI_OK(napi_create_buffer_copy(env, length, bytes, nullptr, &result));
}

// Returns the property name as a value. `name` is a literal, and is converted once per environment: conversion takes
// longer than the access to the property.
napi_value propertyKey(napi_env env, const char* name);

// A JavaScript array that is built by appending.
class ArrayBuilder {
 public:
  explicit ArrayBuilder(napi_env env) : env_(env) { NAPI_CHECK(napi_create_array(env, &array_)); }

  void push(napi_value value) { NAPI_CHECK(napi_set_element(env_, array_, length_++, value)); }

  template <class Value>
  void push(Value value) {
    push(toValue(env_, value));
  }

  napi_value get() const { return array_; }

 private:
  napi_env env_;
  napi_value array_ = nullptr;
  uint32_t length_ = 0;
};

// A JavaScript object that is built field by field.
class ObjectBuilder {
 public:
  explicit ObjectBuilder(napi_env env) : env_(env) { NAPI_CHECK(napi_create_object(env, &object_)); }

  void set(const char* name, napi_value value) {
    NAPI_CHECK(napi_set_property(env_, object_, propertyKey(env_, name), value));
  }

  template <class Value>
  void set(const char* name, Value value) {
    set(name, toValue(env_, value));
  }

  napi_value get() const { return object_; }

 private:
  napi_env env_;
  napi_value object_ = nullptr;
};

}  // namespace procwire

#endif
