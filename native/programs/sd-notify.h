// Sends service states to systemd. No-op without a service manager.
#ifndef PROCWIRE_PROGRAMS_SD_NOTIFY_H
#define PROCWIRE_PROGRAMS_SD_NOTIFY_H

#include "service-state.h"

int has_service_manager(void);
void notify_service_manager(enum service_state state);

#endif
