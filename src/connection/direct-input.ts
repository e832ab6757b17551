/** Params of a `process/write` that was decoded from its bytes. */
export interface WriteRequest {
  processId: string;
  writeId?: string | undefined;
  chunk: Uint8Array;
}

/** Writes process input from the socket to the process without JavaScript (direct input). */
export interface DirectInput {
  /** Enables direct input for a process. `input` is the native object of its stdin. */
  route(processId: string, input: object): void;
  unroute(processId: string): void;
  /** Pauses direct input while a chunked message is being sent, so that responses do not interleave with its parts. */
  setPaused(isPaused: boolean): void;
}
