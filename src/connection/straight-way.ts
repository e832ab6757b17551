/** Of a `process/write` that was recognised by its bytes. */
export interface WriteParams {
  processId: string;
  writeId?: string | undefined;
  chunk: Uint8Array;
}

/** Writes the input of processes to them straight from the socket, while that is enabled. */
export interface StraightWay {
  /** `input` is a host process's `straightInput`. */
  open(processId: string, input: object): void;
  shut(processId: string): void;
  /** While held it leaves everything to whoever is told: a message is being sent in parts, and no answer may come between. */
  hold(held: boolean): void;
}
