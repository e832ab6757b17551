/** Degraded features that clients recognize. On the wire, each precedes a colon and the reason. */
export const MISSING_ADDON = "native addon missing";
export const MISSING_WATCHDOG = "no watchdog";
