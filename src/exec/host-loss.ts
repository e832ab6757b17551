/** No host can run commands now, for any caller. */
export class NoHostError extends Error {}

/** The host went away with what an agent had running there: the agent has to begin anew. */
export class HostLostError extends Error {}
