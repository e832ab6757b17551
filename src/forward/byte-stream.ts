/** The events of a stream, in order. */
export interface ByteStreamEvents {
  /** The bytes count against the window until `acknowledge` is called for them. */
  data(chunk: Uint8Array): void;
  /** The peer writes no more; it may still read. */
  end(): void;
  /** The last event, emitted once: both directions are closed. A reason means an error. */
  close(reason: string | null): void;
}

/** Bytes in both directions, each of which ends separately. At most the window's bytes are in flight. */
export interface ByteStream {
  /** Starts the events; called once. */
  open(events: ByteStreamEvents): void;
  /** Resolves when the peer has accepted the bytes; rejects if it never will. A full window delays it. */
  write(chunk: Uint8Array): Promise<void>;
  /** Called after the last write. */
  end(): void;
  /** Reports that this many bytes of `data` were processed, which opens the window. */
  acknowledge(bytes: number): void;
  /** Closes both directions at once. No reason means no error. */
  close(reason: string | null): void;
}

/** Joins two streams: the data of each is written to the other. A slow stream puts backpressure on its peer. */
export function joinStreams(left: ByteStream, right: ByteStream): void {
  left.open(pipeTo(left, right));
  right.open(pipeTo(right, left));
}

function pipeTo(from: ByteStream, to: ByteStream): ByteStreamEvents {
  return {
    data: (chunk) => {
      // A stream that rejects a write has closed and emits that itself.
      to.write(chunk).then(
        () => from.acknowledge(chunk.length),
        () => undefined,
      );
    },
    end: () => to.end(),
    close: (reason) => to.close(reason),
  };
}
