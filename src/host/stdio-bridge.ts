import type { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";

/** Maximum bytes of a client before the first response. A WebSocket upgrade request is smaller. */
const MAX_BYTES_BEFORE_RESPONSE = 64 * 1024;
/** Attempts to reach a server that exits just as the client connects. */
const MAX_ATTEMPTS = 3;

/**
 * Copies bytes in both directions until one side ends. If a server exits before its first response, for example because it
 * was idle, the bridge opens it again and resends the request.
 */
export async function bridge(input: Readable, output: Writable, open: () => Promise<Socket>): Promise<void> {
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
    );
    if (hasResponse || isInputEnded || attemptsLeft-- === 0) break;
    server = await open();
    for (const chunk of sent) server.write(chunk);
    if (isInputEnded) server.end();
  }
  input.destroy();
  await new Promise<void>((resolve) => output.end(() => resolve()));
}

/** Copies the server's output to the client until the server closes. */
function pumpToClient(server: Socket, output: Writable, onResponse: () => void, onDrain: () => void): Promise<void> {
  return new Promise((resolve) => {
    server.once("data", onResponse);
    server.on("data", (chunk: Buffer) => {
      if (!output.write(chunk)) server.pause();
    });
    server.on("drain", onDrain);
    // A server that ends its output has finished with the client.
    server.on("end", () => server.end());
    server.on("error", () => undefined);
    server.on("close", () => resolve());
  });
}
