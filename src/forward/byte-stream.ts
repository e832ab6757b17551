/** What a stream tells, in order. */
export interface ByteStreamEvents {
  /** So many bytes count as under way until `taken` is told of them. */
  data(chunk: Uint8Array): void;
  /** The other side will write no more; it may still read. */
  ended(): void;
  /** The last event, told once: nothing goes either way any more. A reason when it was not its end. */
  closed(reason: string | null): void;
}

/** Bytes in both directions, each of which ends by itself. No more is under way than the stream's window. */
export interface ByteStream {
  /** Events begin; called once. */
  open(events: ByteStreamEvents): void;
  /** Resolves when the other end has taken it; rejects when it never will. Whoever writes waits when too much is under way. */
  write(chunk: Uint8Array): Promise<void>;
  /** Nothing more will be written. */
  end(): void;
  /** Of what `data` told, so much has been dealt with: as much again may come. */
  taken(bytes: number): void;
  /** Ends both directions at once. Without a reason nothing was wrong. */
  close(reason: string | null): void;
}

/** Whatever one tells, the other writes; what one cannot take in holds the other back. */
export function joinStreams(one: ByteStream, other: ByteStream): void {
  one.open(writingTo(one, other));
  other.open(writingTo(other, one));
}

function writingTo(from: ByteStream, to: ByteStream): ByteStreamEvents {
  return {
    data: (chunk) => {
      // A stream that can take nothing more has closed, and tells so itself.
      to.write(chunk).then(
        () => from.taken(chunk.length),
        () => undefined,
      );
    },
    ended: () => to.end(),
    closed: (reason) => to.close(reason),
  };
}
