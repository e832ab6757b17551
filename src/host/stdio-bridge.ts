import type { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";

/** A client asks for its WebSocket in less; one that sends more before an answer does not speak the protocol. */
const MAX_UNANSWERED_BYTES = 64 * 1024;
/** A server that ends by itself just as a client comes is replaced; one that goes on ending is not. */
const TRIES = 3;

/**
 * Carries bytes both ways until one side ends. A server that goes away before its first answer, such as one that was idle
 * for too long, is opened again and told what it had been told.
 */
export async function bridge(input: Readable, output: Writable, open: () => Promise<Socket>): Promise<void> {
  const told: Buffer[] = [];
  let toldBytes = 0;
  let isAnswered = false;
  let isInputOver = false;
  let server = await open();
  let left = TRIES - 1;

  input.on("data", (chunk: Buffer) => {
    if (!isAnswered) {
      told.push(chunk);
      toldBytes += chunk.length;
      if (toldBytes > MAX_UNANSWERED_BYTES) input.pause();
    }
    if (!server.write(chunk)) input.pause();
  });
  const inputOver = () => {
    isInputOver = true;
    server.end();
  };
  if (input.readableEnded) inputOver();
  input.on("end", inputOver);
  input.on("error", inputOver);
  // The client is gone: what the server still says is for nobody.
  output.on("error", () => {
    isInputOver = true;
    server.destroy();
  });
  output.on("drain", () => server.resume());

  for (;;) {
    await carried(
      server,
      output,
      () => {
        isAnswered = true;
        told.length = 0;
        input.resume();
      },
      () => {
        if (isAnswered || toldBytes <= MAX_UNANSWERED_BYTES) input.resume();
      },
    );
    if (isAnswered || isInputOver || left-- === 0) break;
    server = await open();
    for (const chunk of told) server.write(chunk);
    if (isInputOver) server.end();
  }
  input.destroy();
  await new Promise<void>((resolve) => output.end(() => resolve()));
}

/** From the server to the client, until the server has closed. */
function carried(server: Socket, output: Writable, onAnswer: () => void, onDrain: () => void): Promise<void> {
  return new Promise((resolve) => {
    server.once("data", onAnswer);
    server.on("data", (chunk: Buffer) => {
      if (!output.write(chunk)) server.pause();
    });
    server.on("drain", onDrain);
    // A server that says nothing more has let go of the client.
    server.on("end", () => server.end());
    server.on("error", () => undefined);
    server.on("close", () => resolve());
  });
}
