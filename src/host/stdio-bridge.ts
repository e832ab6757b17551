import type { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";

/** Maximum bytes of a client before the first response. A WebSocket upgrade request is smaller. */
const MAX_BYTES_BEFORE_RESPONSE = 64 * 1024;
/** Attempts to reach a server that exits just as the client connects. */
const MAX_ATTEMPTS = 3;

/** Moves bytes between three descriptors outside of JavaScript. Resolves when the server or the client has closed. */
export type ByteMover = (input: number, output: number, server: number) => Promise<void>;

/**
 * Copies bytes in both directions until one side ends. If a server exits before its first response, for example because it
 * was idle, the bridge opens it again and resends the request. After the first response, `moveBytes` takes over if it is
 * given.
 */
export async function bridge(
  input: Readable,
  output: Writable,
  open: () => Promise<Socket>,
  moveBytes?: ByteMover,
): Promise<void> {
  const sent: Buffer[] = [];
  let sentBytes = 0;
  let hasResponse = false;
  let isInputEnded = false;
  let server = await open();
  let attemptsLeft = MAX_ATTEMPTS - 1;

  input.on("data", (chunk: Buffer) => {
    if (!hasResponse) {
      sent.push(chunk);
      sentBytes += chunk.length;
      if (sentBytes > MAX_BYTES_BEFORE_RESPONSE) input.pause();
    }
    if (!server.write(chunk)) input.pause();
  });
  const onInputEnd = () => {
    isInputEnded = true;
    server.end();
  };
  if (input.readableEnded) onInputEnd();
  input.on("end", onInputEnd);
  input.on("error", onInputEnd);
  // The client has exited, so further output of the server is dropped.
  output.on("error", () => {
    isInputEnded = true;
    server.destroy();
  });
  output.on("drain", () => server.resume());

  for (;;) {
    await pumpToClient(
      server,
      output,
      () => {
        hasResponse = true;
        sent.length = 0;
        input.resume();
      },
      () => {
        if (hasResponse || sentBytes <= MAX_BYTES_BEFORE_RESPONSE) input.resume();
      },
      // Node closes the descriptor of an ended input.
      () => moveBytes !== undefined && !isInputEnded,
    );
    if (hasResponse && moveBytes && !isInputEnded) {
      await handOver(input, output, server, moveBytes);
      server.destroy();
    }
    if (hasResponse || isInputEnded || attemptsLeft-- === 0) break;
    server = await open();
    for (const chunk of sent) server.write(chunk);
    if (isInputEnded) server.end();
  }
  input.destroy();
  await new Promise<void>((resolve) => output.end(() => resolve()));
}

/** Flushes the streams and leaves their descriptors to `moveBytes`. */
async function handOver(input: Readable, output: Writable, server: Socket, moveBytes: ByteMover): Promise<void> {
  const flush = (to: Writable, bytes: Buffer | null) =>
    new Promise<void>((resolve) => to.write(bytes ?? Buffer.alloc(0), () => resolve()));
  const [inputFd, outputFd, serverFd] = [input, output, server].map(descriptorOf);
  if (inputFd === undefined || outputFd === undefined || serverFd === undefined) return;
  // A drain would resume reading.
  for (const stream of [output, server]) stream.removeAllListeners("drain");
  await Promise.all([flush(server, stopReading(input)), flush(output, stopReading(server))]);
  await moveBytes(inputFd, outputFd, serverFd);
}

interface SocketHandle {
  fd: number;
  readStop(): void;
}

/** Returns Node's handle of an open socket, whose descriptor has no public name; undefined for other streams. */
function handleOf(stream: Readable | Writable): SocketHandle | null | undefined {
  return (stream as { _handle?: SocketHandle | null })._handle;
}

function descriptorOf(stream: Readable | Writable): number | undefined {
  const fd = handleOf(stream)?.fd;
  return fd === undefined || fd < 0 ? undefined : fd;
}

/** Stops reading for good. Returns the bytes that were read already. */
function stopReading(stream: Readable): Buffer | null {
  stream.removeAllListeners("data");
  stream.pause();
  const bytes: Buffer | null = stream.read();
  // `read` may have started another one.
  handleOf(stream)?.readStop();
  return bytes;
}

/** Copies the server's output to the client until the server closes, or until `isDone` returns true after a chunk. */
function pumpToClient(
  server: Socket,
  output: Writable,
  onResponse: () => void,
  onDrain: () => void,
  isDone: () => boolean,
): Promise<void> {
  return new Promise((resolve) => {
    server.once("data", onResponse);
    server.on("data", (chunk: Buffer) => {
      if (!output.write(chunk)) server.pause();
      if (isDone()) resolve();
    });
    server.on("drain", onDrain);
    // A server that ends its output has finished with the client.
    server.on("end", () => server.end());
    server.on("error", () => undefined);
    server.on("close", () => resolve());
  });
}
