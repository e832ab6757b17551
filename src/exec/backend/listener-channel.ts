/** Receives the listeners that a sandbox opens in its own network namespace. */
export interface ListenerChannel {
  /** The end that the sandbox inherits. The caller closes it after the start, so that the sandbox's exit ends the wait. */
  readonly sandboxEnd: number;
  /**
   * Descriptors of listening TCP sockets, in the order of the requested ports; none if the sandbox ended before, or the
   * channel was closed. The receiver owns them.
   */
  readonly listeners: Promise<readonly number[]>;
  /** Stops waiting. Idempotent. Does not close `sandboxEnd`. */
  close(): void;
}

/** The parts of a managed network that the addon and its programs provide. */
export interface ListenerSupport {
  /** Absolute path of the executable that opens the listeners inside the sandbox. */
  readonly program: string;
  /** Throws if no descriptor is free. */
  openChannel(): ListenerChannel;
}
