#ifndef PROCWIRE_NET_BINDINGS_H
#define PROCWIRE_NET_BINDINGS_H

#include "core/napi-call.h"

namespace procwire {

Bindings netBindings(napi_env env);

}  // namespace procwire

#endif
