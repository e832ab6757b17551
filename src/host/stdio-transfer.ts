import type { Socket } from "node:net";
import { descriptorOf } from "../base/descriptor-of.ts";
import { loadAddon } from "../native/load-addon.ts";

export interface StdioTransfer {
  /** Resolves when the server has closed the connection of the client. */
  readonly ended: Promise<void>;
}

/**
 * Passes stdin and stdout to the server. The server then serves the client directly, and this process only waits. Nothing
 * may have been read from stdin. Resolves to null, with `server` destroyed, if the server does not confirm: it runs
 * without the addon, or its version is older. Without the addon here, resolves to null and leaves `server` open.
 */
export async function transferStdio(server: Socket): Promise<StdioTransfer | null> {
  const loaded = loadAddon();
  const connection = descriptorOf(server);
  if (loaded.type !== "loaded" || connection === null) return null;
  const ended = new Promise<void>((resolve) => server.once("close", () => resolve()));
  server.on("error", () => undefined);
  const confirmed = readConfirmation(server, loaded.addon.transferLine);
  if (loaded.addon.transferStdio(connection, 0, 1) === null && (await confirmed)) {
    server.once("end", () => server.destroy());
    server.resume();
    return { ended };
  }
  server.destroy();
  return null;
}

/** Resolves to true if the next bytes are the line. */
function readConfirmation(server: Socket, line: string): Promise<boolean> {
  return new Promise((resolve) => {
    let received = "";
    const settle = (isConfirmed: boolean) => {
      server.off("data", onData);
      for (const event of ["end", "close"]) server.off(event, onClosed);
      resolve(isConfirmed);
    };
    const onData = (chunk: Buffer) => {
      received += chunk.toString("latin1");
      if (received.length >= line.length || !line.startsWith(received)) settle(received === line);
    };
    const onClosed = () => settle(false);
    server.on("data", onData);
    for (const event of ["end", "close"]) server.on(event, onClosed);
  });
}
