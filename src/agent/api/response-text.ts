import type { IncomingMessage } from "node:http";

/** Enough for any error message; the whole page of a proxy is not needed. */
const MAX_ERROR_CHARS = 64 * 1024;

/** Reads a response to its end and returns at least its first `maxChars` characters. Default: enough for an error. */
export async function readText(incoming: IncomingMessage, maxChars = MAX_ERROR_CHARS): Promise<string> {
  let text = "";
  incoming.setEncoding("utf8");
  for await (const chunk of incoming) if (text.length < maxChars) text += String(chunk);
  return text;
}
