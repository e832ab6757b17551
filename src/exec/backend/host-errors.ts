/** No host can run commands at the moment, for any caller. */
export class NoHostAvailableError extends Error {}

/** The host disconnected and the agent's processes there are lost; the agent has to start over. */
export class HostLostError extends Error {}
