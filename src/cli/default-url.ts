/** URL of a server that `procwire start` runs. Commands that require a server connect to it by default. */
export const DEFAULT_URL = "ws://127.0.0.1:7070";
