import type { ClientRequest, IncomingMessage } from "node:http";
import { ModelError } from "./model-error.ts";

/** Resolves with the response head. Destroys the request if the API sends no data for `idleTimeoutMs`. */
export function receiveResponse(outgoing: ClientRequest, idleTimeoutMs: number): Promise<IncomingMessage> {
  outgoing.setTimeout(idleTimeoutMs, () =>
    outgoing.destroy(new ModelError("transport", `the API was silent for ${idleTimeoutMs / 1000} s`)),
  );
  return new Promise((resolve, reject) => {
    // This listener stays for the life of the request. After the response has begun, the response also reports the
    // error.
    outgoing.on("error", reject);
    outgoing.on("response", resolve);
  });
}

/** Enough for any error message; the whole page of a proxy is not needed. */
const MAX_ERROR_CHARS = 64 * 1024;

/** Reads a response to its end and returns at least its first `maxChars` characters. Default: enough for an error. */
export async function readText(incoming: IncomingMessage, maxChars = MAX_ERROR_CHARS): Promise<string> {
  let text = "";
  incoming.setEncoding("utf8");
  for await (const chunk of incoming) if (text.length < maxChars) text += String(chunk);
  return text;
}
