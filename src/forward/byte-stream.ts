/** The events of a stream, in order. */
export interface ByteStreamEvents {
  /** These bytes fill the window until `taken` is called for them. */
  data(chunk: Uint8Array): void;
  /** The other side will write no more; it may still read. */
  ended(): void;
  /** The last event, emitted once: nothing moves in either direction any more. A reason means an error. */
  closed(reason: string | null): void;
}

/** Bytes in both directions, each of which ends by itself. No more is under way than the stream's window. */
export interface ByteStream {
  /** Starts the events; called once. */
  open(events: ByteStreamEvents): void;
  /** Resolves when the other end has taken it, rejects when it never will. A full window makes the writer wait. */
  write(chunk: Uint8Array): Promise<void>;
  /** Nothing more will be written. */
  end(): void;
  /** This many bytes of `data` have been processed: the window opens by as much. */
  taken(bytes: number): void;
  /** Ends both directions at once. No reason means no error. */
  close(reason: string | null): void;
}

/** Joins two streams: what comes from one is written to the other, and a slow one puts backpressure on the other. */
export function joinStreams(one: ByteStream, other: ByteStream): void {
  one.open(writingTo(one, other));
  other.open(writingTo(other, one));
}

function writingTo(from: ByteStream, to: ByteStream): ByteStreamEvents {
  return {
    data: (chunk) => {
      // A stream that takes nothing more has closed, and emits that itself.
      to.write(chunk).then(
        () => from.taken(chunk.length),
        () => undefined,
      );
    },
    ended: () => to.end(),
    closed: (reason) => to.close(reason),
  };
}
